# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertConfig: the architecture of a model, its presets and its JSON form. Free of TensorFlow."""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.settings import Settings, count_setting, setting

ACTIVATIONS = ("gelu", "relu", "tanh", "linear", "gelu_erf")
PARAMETER_SHARING = ("all", "attention", "ffn", "none")
#: How the outputs for the pieces of a text become its vector, see `modeling.encoder.pooled`.
POOLINGS = ("sif", "mean", "cls")

#: Added to the variance in every layer normalisation; the same in all models of the release.
LAYER_NORM_EPSILON = 1e-12

#: Name of the configuration file beside checkpoints and exports.
CONFIG_FILE = "albert_config.json"
_PRESET_FOLDER = pathlib.Path(__file__).parent / "configs" / "models"
#: Keys of the released configuration files that never had an effect.
_WITHOUT_EFFECT = frozenset(
    {"down_scale_factor", "gap_size", "layers_to_keep", "net_structure_type", "num_memory_blocks"}
)
#: No model is so deep. A damaged number should not take all memory or time; a block of weights
#: takes a tenth of a second to build.
_MAX_BLOCKS = 1000
#: Dropout rates are below 1.
_MAX_RATE = 0.999
_MAX_PARAMETERS = 10**11


@dataclasses.dataclass(frozen=True)
class AlbertConfig(Settings):
    """Architecture of an ALBERT (or, without sharing and with E = H, a BERT).

    Keys are those of the TF1 release's `albert_config.json`, plus `parameter_sharing`.

    Raises:
      AlbertError: a value is of the wrong kind, out of range or at odds with another.
    """

    vocab_size: int = count_setting(help="V, rows of the word-embedding table.")
    embedding_size: int = count_setting(
        help="E, width of the embedding tables; E = H builds no projection."
    )
    hidden_size: int = count_setting(help="H, width of the transformer.")
    num_hidden_layers: int = count_setting(help="L.")
    num_attention_heads: int = count_setting(
        help="Heads per layer; divides H. No weight's shape depends on it, so a wrong value loads "
        "without complaint and ruins the outputs: take it from the checkpoint's configuration."
    )
    intermediate_size: int = count_setting(help="F, width of the feed-forward network.")
    num_hidden_groups: int = count_setting(
        1, "G; layer l uses the shared weights of group int(l / L * G)."
    )
    inner_group_num: int = count_setting(
        1, "Blocks of weights in a group, applied one after the other in every layer."
    )
    hidden_act: str = setting(
        "gelu",
        "gelu is the tanh approximation, gelu_erf the exact function, Hugging Face's gelu.",
        choices=ACTIVATIONS,
    )
    hidden_dropout_prob: float = setting(
        0.0, "Rate on the embeddings and on the output of every sub-layer.", maximum=_MAX_RATE
    )
    attention_probs_dropout_prob: float = setting(
        0.0, "Rate on the attention probabilities.", maximum=_MAX_RATE
    )
    max_position_embeddings: int = count_setting(512, "Longest sequence.")
    type_vocab_size: int = count_setting(2, "Number of segment types.")
    initializer_range: float = setting(
        0.02, "Standard deviation of the truncated normal initialiser.", maximum=1000
    )
    parameter_sharing: str = setting(
        "all",
        "What layers share: all, only the attention weights, only the ffn weights, or none. A part "
        "that is not shared has one set of weights per layer.",
        choices=PARAMETER_SHARING,
        source="section 3.1 and Table 4 of the paper",
    )

    def __post_init__(self) -> None:
        """Checks the values."""
        super().__post_init__()
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        fault = ""
        if self.hidden_size % self.num_attention_heads:
            fault = (
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}"
            )
        elif groups > layers:
            fault = f"num_hidden_groups {groups} exceeds num_hidden_layers {layers}"
        elif self.parameter_sharing == "none" and groups != 1:
            fault = f"num_hidden_groups {groups} has no effect with parameter_sharing 'none'"
        elif layers * self.inner_group_num > _MAX_BLOCKS:
            fault = (
                f"num_hidden_layers {layers} times inner_group_num {self.inner_group_num} exceeds "
                f"{_MAX_BLOCKS}; no model is so deep"
            )
        elif (parameters := self.count_parameters()["total"]) > _MAX_PARAMETERS:
            fault = f"a model of {parameters:.1e} parameters is too large; check the sizes"
        if fault:
            raise AlbertError(f"{fault}.")

    @classmethod
    def from_preset(cls, name: str) -> AlbertConfig:
        """Returns a preset such as "albert_base_v2"; AlbertError for none of `preset_names()`."""
        if name not in cls.preset_names():
            raise AlbertError(
                f"{name!r} is neither a .json file nor a model preset "
                f"({', '.join(cls.preset_names())}); a pretrained model's configuration comes with "
                "its weights, `init_checkpoint`."
            )
        return cls.from_json(str(_PRESET_FOLDER / f"{name}.json"))

    @staticmethod
    def preset_names() -> list[str]:
        """Returns the names of all presets, sorted."""
        return sorted(path.stem for path in _PRESET_FOLDER.glob("*.json"))

    @classmethod
    def from_json(cls, path: str) -> AlbertConfig:
        """Reads `albert_config.json`, as in the release or as written by `to_json`.

        Raises AlbertError if it is missing, is no JSON object, lacks a key or holds a bad value.
        """
        path = files.path_of(path, "model configuration")
        return cls.from_dict(files.read_object(path, "model configuration"), source=path)

    @classmethod
    def load(cls, name_or_path: str) -> AlbertConfig:
        """Returns the preset of that name, or reads the JSON file there; else AlbertError."""
        path = files.path_of(name_or_path, "model configuration")
        return cls.from_json(path) if path.endswith(".json") else cls.from_preset(path)

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], source: str = "the configuration"
    ) -> AlbertConfig:
        """Builds a configuration from its JSON keys, and warns of unknown ones.

        Keys with a default may be absent. Raises AlbertError, which names the source, if another
        one is missing or a value is bad.
        """
        if not isinstance(values, Mapping):
            raise AlbertError(
                f"{source} must be a mapping of keys to values, not {short_repr(values)}."
            )
        fields = {field.name: field.default for field in dataclasses.fields(cls)}
        missing = [
            name
            for name, default in fields.items()
            if default is dataclasses.MISSING and name not in values
        ]
        if missing:
            raise AlbertError(f"{source} lacks {', '.join(missing)}; add the missing key(s).")
        for key in sorted(set(values) - set(fields) - _WITHOUT_EFFECT):
            warnings.warn(f"{source}: unknown key {short_repr(key)} is ignored.", stacklevel=2)
        try:
            return cls(**{key: value for key, value in values.items() if key in fields})
        except AlbertError as error:
            raise AlbertError(f"{source}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Returns all keys and values, ready for JSON."""
        return dataclasses.asdict(self)

    def to_json(self, path: str) -> None:
        """Writes the configuration to `path`, which is either complete or untouched."""
        files.write_json(path, self.to_dict())

    def check_length(self, max_seq_length: int) -> None:
        """Raises AlbertError if the model cannot read sequences of `max_seq_length` tokens."""
        if max_seq_length > self.max_position_embeddings:
            raise AlbertError(
                f"`max_seq_length`={max_seq_length} exceeds the model's "
                f"max_position_embeddings={self.max_position_embeddings}."
            )

    def check_vocabulary(self, size: int, which: str) -> None:
        """Raises AlbertError if the model has not the rows of a vocabulary of that size.

        It may have some more, see `has_rows_of`. `which` continues "The vocabulary" in the error,
        such as "in runs/base".
        """
        if not self.has_rows_of(size):
            raise AlbertError(
                f"The vocabulary {which} has {size} pieces, but the model vocab_size="
                f"{self.vocab_size}; use the checkpoint's own vocabulary."
            )

    def has_rows_of(self, size: int) -> bool:
        """Returns whether vocab_size is the size of a vocabulary, or padded as other programs do.

        They add rows up to a multiple of a power of two, which are of no piece.
        """
        return any(-(-size // step) * step == self.vocab_size for step in (1, 8, 16, 32, 64, 128))

    def group(self, layer: int, part: str) -> int:
        """Returns the group whose weights of a part, "attention" or "ffn", `layer` uses."""
        if self.parameter_sharing not in ("all", part):
            return layer
        # In floating point, as in the official code: for some (L, G), such as 22 and 22, the result
        # differs from layer * G // L, and released weights depend on it.
        return int(layer / self.num_hidden_layers * self.num_hidden_groups)

    def shared_by_groups(self) -> AlbertConfig:
        """Returns the configuration of the same model for programs without `parameter_sharing`.

        Layers that share nothing become one group each, under the same names.

        Raises:
          AlbertError: only attention or only the feed-forward network is shared, or such programs
            would assign layers to other groups.
        """
        if self.parameter_sharing == "all":
            return self
        layers = self.num_hidden_layers
        grouped = dataclasses.replace(self, parameter_sharing="all", num_hidden_groups=layers)
        same = all(grouped.group(layer, "attention") == layer for layer in range(layers))
        if self.parameter_sharing != "none" or not same:
            raise AlbertError(
                f"A model with parameter_sharing={self.parameter_sharing!r} and {layers} layers "
                "has no counterpart in the TF1 release and at Hugging Face; keep it in the format "
                "tf2."
            )
        return grouped

    def with_layers(self, num_hidden_layers: int | None) -> AlbertConfig:
        """Returns the configuration of the same weights with fewer layers; itself for None.

        Raises:
          AlbertError: layers do not share all their weights, or the number is too large, or too
            small for all groups.
        """
        if num_hidden_layers is None:
            return self
        if self.parameter_sharing != "all":
            raise AlbertError(
                "Only a model whose layers share all their weights can be trained with fewer "
                f"layers, but parameter_sharing is {self.parameter_sharing!r}."
            )
        if not self.num_hidden_groups <= num_hidden_layers < self.num_hidden_layers:
            raise AlbertError(
                f"A model of {self.num_hidden_layers} layers cannot be trained with "
                f"{num_hidden_layers} layers; give fewer than {self.num_hidden_layers}, and at "
                f"least as many as it has groups, {self.num_hidden_groups}."
            )
        return dataclasses.replace(self, num_hidden_layers=num_hidden_layers)

    def count_parameters(self) -> dict[str, int]:
        """Counts the trainable parameters by part, without building the model.

        Returns:
          "encoder" (embeddings, transformer and pooler), "pooler" (a part of "encoder"),
          "mlm_head" (without the tied embedding table), "sop_head", and "total", the number of
          parameters that pretraining trains.
        """
        v, e, h, f = self.vocab_size, self.embedding_size, self.hidden_size, self.intermediate_size
        layers = range(self.num_hidden_layers)
        attention = (4 * (h * h + h) + 2 * h) * len({self.group(n, "attention") for n in layers})
        ffn = (2 * h * f + f + h + 2 * h) * len({self.group(n, "ffn") for n in layers})
        embeddings = (v + self.type_vocab_size + self.max_position_embeddings + 2) * e
        projection = 0 if e == h else e * h + h
        pooler = h * h + h
        encoder = embeddings + projection + (attention + ffn) * self.inner_group_num + pooler
        mlm, sop = (h * e + e) + 2 * e + v, 2 * h + 2
        counts = {"encoder": encoder, "pooler": pooler, "mlm_head": mlm, "sop_head": sop}
        return {**counts, "total": encoder + mlm + sop}

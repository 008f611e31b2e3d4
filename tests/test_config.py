# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Presets, parameter counts, strict JSON and the checks of AlbertConfig."""

from __future__ import annotations

import dataclasses
import json
import warnings

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from tests.support.builders import tiny_config

BASE = AlbertConfig.from_preset("albert_base_v2")


@pytest.mark.parametrize(
    ("size", "encoder", "pooler", "mlm_head", "sop_head", "total"),
    [
        ("base", 11_683_584, 590_592, 128_688, 1_538, 11_813_810),
        ("large", 17_683_968, 1_049_600, 161_456, 2_050, 17_847_474),
        ("xlarge", 58_724_864, 4_196_352, 292_528, 4_098, 59_021_490),
        ("xxlarge", 222_595_584, 16_781_312, 554_672, 8_194, 223_158_450),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_presets_have_the_parameter_counts_of_the_release(
    size, version, encoder, pooler, mlm_head, sop_head, total
):
    assert AlbertConfig.from_preset(f"albert_{size}_{version}").count_parameters() == {
        "encoder": encoder,
        "pooler": pooler,
        "mlm_head": mlm_head,
        "sop_head": sop_head,
        "total": total,
    }


def shared(embedding_size, sharing):
    return dataclasses.replace(BASE, embedding_size=embedding_size, parameter_sharing=sharing)


@pytest.mark.parametrize(
    ("config", "millions"),
    [
        # Table 1. The paper has 60 for xlarge and 233 to 235 for xxlarge; by its
        # own configuration they are 59 and 223.
        (AlbertConfig.from_preset("bert_base"), 108),
        (AlbertConfig.from_preset("bert_large"), 334),
        (AlbertConfig.from_preset("bert_xlarge"), 1270),
        (BASE, 12),
        (AlbertConfig.from_preset("albert_large_v2"), 18),
        (AlbertConfig.from_preset("albert_xlarge_v2"), 59),
        (AlbertConfig.from_preset("albert_xxlarge_v2"), 223),
        # Table 3.
        (shared(64, "none"), 87),
        (shared(128, "none"), 89),
        (shared(256, "none"), 93),
        (shared(768, "none"), 108),
        (shared(64, "all"), 10),
        (shared(128, "all"), 12),
        (shared(256, "all"), 16),
        (shared(768, "all"), 31),
        # Table 4.
        (shared(768, "attention"), 83),
        (shared(768, "ffn"), 57),
        (shared(128, "attention"), 64),
        (shared(128, "ffn"), 38),
    ],
)
def test_parameter_counts_are_those_of_the_paper_tables(config, millions):
    count = config.count_parameters()["encoder"] / 1e6
    # The tables round to whole millions, which is more than 2 % of the smallest entries.
    assert abs(count - millions) <= max(0.02 * millions, 0.5)


def test_dropout_of_the_presets_follows_the_release():
    rates = {
        name: {config.hidden_dropout_prob, config.attention_probs_dropout_prob}
        for name in AlbertConfig.preset_names()
        for config in [AlbertConfig.from_preset(name)]
    }
    with_dropout = {name for name, rate in rates.items() if rate == {0.1}}
    assert with_dropout == {
        *("albert_base_v1", "albert_large_v1", "albert_xlarge_v1"),
        *("bert_base", "bert_large", "bert_xlarge"),
    }
    assert all(rate == {0.0} for name, rate in rates.items() if name not in with_dropout)


def test_chinese_presets_use_relu_their_vocabulary_and_sixteen_heads_in_xxlarge():
    for size in ("base", "large", "xlarge", "xxlarge"):
        config = AlbertConfig.from_preset(f"albert_{size}_zh")
        assert (config.hidden_act, config.vocab_size) == ("relu", 21128)
    assert AlbertConfig.from_preset("albert_xxlarge_zh").num_attention_heads == 16
    assert AlbertConfig.from_preset("albert_xxlarge_v2").num_attention_heads == 64


def test_an_unknown_preset_is_refused_with_the_list_of_presets():
    with pytest.raises(AlbertError, match=r"albert_bass_v2.*albert_base_v2"):
        AlbertConfig.from_preset("albert_bass_v2")


def test_load_takes_a_preset_or_a_file(tmp_path):
    path = str(tmp_path / "config.json")
    dataclasses.replace(BASE, vocab_size=77).to_json(path)
    assert AlbertConfig.load("albert_base_v2") == BASE
    assert AlbertConfig.load(path).vocab_size == 77
    with pytest.raises(AlbertError, match=r"albert_bass.*neither"):
        AlbertConfig.load("albert_bass")


def test_json_round_trip_keeps_every_value(tmp_path):
    config = tiny_config(
        11,
        num_hidden_layers=6,
        num_hidden_groups=2,
        inner_group_num=2,
        hidden_act="relu",
        hidden_dropout_prob=0.25,
        attention_probs_dropout_prob=0.125,
        type_vocab_size=3,
        initializer_range=0.01,
        parameter_sharing="attention",
    )
    path = str(tmp_path / "config.json")
    config.to_json(path)
    assert AlbertConfig.from_json(path) == config
    assert sorted(json.loads((tmp_path / "config.json").read_text())) == sorted(config.to_dict())


def test_an_unknown_key_is_named_in_a_warning(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BASE.to_dict(), "num_hiden_layers": 3}))
    with pytest.warns(UserWarning, match="config.json.*num_hiden_layers"):
        assert AlbertConfig.from_json(str(path)) == BASE


def test_keys_without_effect_in_released_files_cause_no_warning():
    released = {
        "net_structure_type": 0,
        "gap_size": 0,
        "num_memory_blocks": 0,
        "layers_to_keep": [],
        "down_scale_factor": 1,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert AlbertConfig.from_dict({**BASE.to_dict(), **released}) == BASE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "not a JSON object"),
        ("{", "not JSON"),
        (None, "does not exist"),
        (json.dumps({"vocab_size": 9}), "lacks embedding_size, hidden_size"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AlbertError, match=f"config.json.*{message}"):
        AlbertConfig.from_json(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 7}, "hidden_size 768 is not a multiple of num_attention_heads 7"),
        ({"num_hidden_groups": 13}, "num_hidden_groups 13 exceeds num_hidden_layers 12"),
        ({"num_hidden_groups": 2, "parameter_sharing": "none"}, "num_hidden_groups 2"),
        ({"hidden_act": "gleu"}, "`hidden_act`='gleu' is unknown; use one of gelu, relu"),
        ({"parameter_sharing": "some"}, "`parameter_sharing`='some' is unknown; use one of all"),
        ({"vocab_size": 0}, "`vocab_size`=0 must be an integer from 1 to"),
        ({"hidden_size": 768.5}, "`hidden_size`=768.5 must be an integer from 1"),
        ({"num_hidden_layers": True}, "`num_hidden_layers`=True must be an integer from 1"),
        ({"num_hidden_layers": 1001}, "num_hidden_layers 1001 times inner_group_num 1 exceeds"),
        ({"inner_group_num": 100}, "num_hidden_layers 12 times inner_group_num 100 exceeds 1000"),
        ({"hidden_dropout_prob": 1.0}, "`hidden_dropout_prob`=1.0 must be a number from 0"),
        ({"attention_probs_dropout_prob": -0.1}, "_dropout_prob`=-0.1 must be a number"),
        ({"initializer_range": "0.02"}, "`initializer_range`='0.02' must be a number"),
        ({"initializer_range": float("nan")}, "`initializer_range`=nan must be a number"),
    ],
)
def test_inconsistent_values_are_refused(change, message):
    with pytest.raises(AlbertError, match=message):
        AlbertConfig.from_dict({**BASE.to_dict(), **change})


def test_layers_are_assigned_to_groups_as_in_the_official_code():
    config = dataclasses.replace(BASE, num_hidden_groups=5)
    assert [config.group(n, "attention") for n in range(12)] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]
    config = dataclasses.replace(BASE, num_hidden_layers=22, num_hidden_groups=22)
    assert config.group(15, "ffn") == 14


@pytest.mark.parametrize("layers", [None, 3, 4, 7, 11])
def test_fewer_layers_of_a_model_have_the_same_groups(layers):
    config = dataclasses.replace(BASE, num_hidden_groups=3)
    shallow = config.with_layers(layers)
    assert shallow == dataclasses.replace(config, num_hidden_layers=layers or 12)
    groups = [shallow.group(layer, "attention") for layer in range(layers or 12)]
    assert groups == sorted(groups) and set(groups) == {0, 1, 2}
    assert shallow.count_parameters() == config.count_parameters()


@pytest.mark.parametrize(
    ("change", "layers", "message"),
    [
        ({}, 2, "cannot be trained with 2 layers; give fewer than 12, and .* groups, 3"),
        # It would change nothing, but be recorded.
        ({}, 12, "cannot be trained with 12 layers;"),
        ({}, 13, "cannot be trained with 13 layers;"),
        ({}, 0, "cannot be trained with 0 layers;"),
        ({"num_hidden_groups": 1, "parameter_sharing": "ffn"}, 6, "parameter_sharing is 'ffn'"),
    ],
)
def test_layer_counts_that_change_the_weights_are_refused(change, layers, message):
    config = dataclasses.replace(BASE, **{"num_hidden_groups": 3, **change})
    with pytest.raises(AlbertError, match=message):
        config.with_layers(layers)


@pytest.mark.parametrize("wrong", [None, 3, b"x.json"])
def test_values_that_are_neither_paths_nor_mappings_are_refused(wrong):
    for read in (AlbertConfig.load, AlbertConfig.from_json):
        with pytest.raises(AlbertError, match="path of the model configuration must be a string"):
            read(wrong)
    with pytest.raises(AlbertError, match="must be a mapping of keys to values, not"):
        AlbertConfig.from_dict(wrong)

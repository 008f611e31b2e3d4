# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""No altered SentencePiece model ends the process: it is used, or refused in a sentence.

The models are opened by this module as a program, because a fault of the library ends the process:
it prints the name of each model before it opens it, and then what came of it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.huggingface.tokenizer import tokenizer_json
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.tokenization.tokenizer import Tokenizer

BUNDLED = Path(__file__).parents[2] / "albert_tf/pretrained/albert_tiny_books/spiece.model"
TEXTS = ("In 2013, ﬁne ½ e\u0301 ｱﾞ ㌔ ﷺ \0", "a" * 300, "<x>" * 40, "")


def _table(change: Callable[[bytearray], object], spec: str = "normalizer_spec") -> Callable:
    def alter(model: ModelProto) -> None:
        table = bytearray(model.normalizer_spec.precompiled_charsmap)
        change(table)
        getattr(model, spec).precompiled_charsmap = bytes(table)

    return alter


def _added(*pieces: str, kind: int = 1) -> Callable:
    return lambda model: [model.pieces.add(piece=p, score=-1.0, type=kind) for p in pieces]


def _set_units(table: bytearray, where: slice, unit: int) -> None:
    units = np.frombuffer(table, "<u4", (len(table) - 4) // 4, offset=4)
    size = int.from_bytes(table[:4], "little") // 4
    units[:size][where] = unit


def _loop(table: bytearray) -> None:
    """Makes the rule for "a" follow itself, without end."""
    units = np.frombuffer(table, "<u4", int.from_bytes(table[:4], "little") // 4, offset=4)
    at = (int(units[0]) >> 10) ^ ord("a")
    units[at] = ord("a") << 10 | 1 << 8 | ord("a")
    units[at ^ ord("a")] = 1 << 31


FAULTS = {
    "1,024 bytes of 0xFF": _table(lambda t: t.__setitem__(slice(None), b"\xff" * 1024)),
    "units of 0xFF": _table(lambda t: _set_units(t, slice(None), 0x7FFFFFFF)),
    "units of 0xFF after the root": _table(lambda t: _set_units(t, slice(1, None), 0x7FFFFE61)),
    "values of 0xFF": _table(
        lambda t: _set_units(t, np.frombuffer(t, "<u4", 44800, offset=4) >> 31 > 0, 0xFFFFFFFF)
    ),
    "a cycle": _table(_loop),
    "no units": _table(lambda t: t.__setitem__(slice(4), bytes(4))),
    "no replacements": _table(lambda t: t.__delitem__(slice(-60_000, None))),
    "a size of the whole file": _table(
        lambda t: t.__setitem__(slice(4), (len(t) - 1).to_bytes(4, "little"))
    ),
    "a denormalizer": _table(lambda t: _set_units(t, slice(None), 0x7FFFFFFF), "denormalizer_spec"),
    "a piece of 5 MB": _added("a" * 5_000_000),
    "a symbol of 5 MB": _added("a" * 5_000_000, kind=4),
    "a piece that begins with NUL": _added("\0a"),
    "symbols with NUL": _added("a\0b", "a\0c", kind=4),
    "200 symbols that begin alike": _added(*("a" * n for n in range(2, 202)), kind=4),
}


def use(path: Path) -> str:
    """Opens a tokenizer and encodes and decodes texts."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
        encoded = tokenizer.encode_batch(list(TEXTS))
        for text, ids in zip(TEXTS, encoded):
            next(tokenizer.encode_with_offsets([text]))
            tokenizer.decode(ids)
        tokenizer.decode(range(tokenizer.vocab_size))
    except AlbertError as error:
        return str(error)
    return "used"


def main() -> None:
    """Opens each model."""
    values = tokenizer_json(Tokenizer.from_file(str(BUNDLED)))
    with tempfile.TemporaryDirectory() as folder:
        for name, alter in {"no change": lambda model: None, **FAULTS}.items():
            model = ModelProto.FromString(BUNDLED.read_bytes())
            del model.pieces[200:]
            alter(model)
            print(name, end=": ", flush=True)
            path = Path(folder, "strange.model")
            path.write_bytes(model.SerializeToString())
            print(use(path), flush=True)
        table = base64.b64encode((179200).to_bytes(4, "little") + b"\xff\xff\xff\x7f" * 60_000)
        steps = values["normalizer"]["normalizers"]
        steps[-1]["precompiled_charsmap"] = table.decode()
        path = Path(folder, "tokenizer.json")
        path.write_text(json.dumps(values))
        print("tokenizer.json", end=": ", flush=True)
        print(use(path), flush=True)


def test_a_model_that_would_end_the_process_is_refused():
    command = [sys.executable, "-m", "tests.fuzz.test_strange_models"]
    result = subprocess.run(command, capture_output=True, text=True)
    # The last line names the model that ended the process.
    assert result.returncode == 0, result.stdout[-200:] + result.stderr[-2000:]
    opened = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    for name in [*FAULTS, "tokenizer.json"]:
        assert " is damaged: " in opened[name], name
    assert opened["no change"] == "used"


if __name__ == "__main__":
    main()

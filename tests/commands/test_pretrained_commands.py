# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands that use or change a pretrained model do what the Python API does."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest

from albert_tf.weights.pretrained_model import load_pretrained
from tests.support.weights import GOLDEN

MODEL = "albert_tiny_books"
TEXTS = ["It was the best of times.", "", "Häuser."]
MASKED = "It was the [MASK] of times."


@pytest.fixture(scope="module")
def model():
    return load_pretrained(MODEL)


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_vectors_are_printed_as_json_without_loss(albert, model):
    rows = json_lines(albert("embed", MODEL, *TEXTS).ok().stdout)
    assert [row["text"] for row in rows] == TEXTS
    printed = np.array([row["vector"] for row in rows], np.float32)
    np.testing.assert_array_equal(printed, model.embed(TEXTS))


def test_a_plain_encoder_that_transformers_saved_has_the_same_vectors(albert, tmp_path):
    folder = str(tmp_path / "plain")
    shutil.copytree(GOLDEN / "hf_heads/embedding", folder)
    (tmp_path / "plain/modules.json").unlink()  # Those of sentence-transformers.
    rows = json_lines(albert("embed", folder, *TEXTS).ok().stdout)
    expected = load_pretrained(folder).embed(TEXTS)
    np.testing.assert_array_equal(np.float32([row["vector"] for row in rows]), expected)


def test_vectors_of_lines_are_written_to_a_file(albert, model, tmp_path):
    text, vectors = tmp_path / "texts.txt", tmp_path / "new/vectors.npy"
    text.write_bytes("\r\n".join(TEXTS).encode())
    given = ["embed", MODEL, f"--output_file={vectors}"]
    done = albert(*given, f"--input_file={text}").ok()
    assert done.stdout == f"{vectors}: 3 vectors of 256 numbers.\n"
    expected = model.embed(TEXTS)
    np.testing.assert_array_equal(np.load(vectors), expected)
    table = tmp_path / "texts.csv"
    table.write_text("id,text\n" + "".join(f'{i},"{x}"\n' for i, x in enumerate(TEXTS)))
    albert(*given, "--overwrite", f"--input_file={table}").ok()
    np.testing.assert_array_equal(np.load(vectors), expected)
    refused = albert(*given, *TEXTS)
    assert refused.returncode == 1 and "already exists" in refused.stderr
    albert(*given, "--overwrite", stdin="\n".join(TEXTS[::2]).encode()).ok()
    np.testing.assert_allclose(np.load(vectors), expected[::2], atol=1e-5)


def test_a_warning_is_printed_in_one_line(albert):
    with pytest.warns(UserWarning, match="1 of 1 texts are longer than the model's 512") as caught:
        albert("embed", MODEL, "whale " * 600).ok()
    (warning,) = (w for w in caught if "longer" in str(w.message))
    printed = warnings.formatwarning(warning.message, warning.category, "file.py", 1, "code")
    assert printed == f"Warning: {warning.message}\n"


def test_masks_are_filled(albert, model):
    expected = model.fill_mask(MASKED, 3)
    done = albert("fill-mask", MODEL, MASKED, "The [MASK] and the [MASK].", "--top_k=3").ok()
    first, second = done.stdout.split("\n\n")
    for line, filled in zip(first.splitlines(), expected):
        score, word, text = line.split(maxsplit=2)
        assert float(score.rstrip("%")) == pytest.approx(100 * filled.score, rel=0.01)
        assert ((word,), text) == (filled.words, filled.text)
    assert len(second.splitlines()) == 3
    (row,) = json_lines(albert("fill-mask", MODEL, MASKED, "--top_k=3", "--json").ok().stdout)
    assert row["text"] == MASKED
    for printed, filled in zip(row["filled"], expected):
        assert {**printed, "words": tuple(printed["words"])} == filled._asdict()


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["fill-mask"], b"", "MODEL is missing; see --help."),
        (["embed", "nothing-here", "x"], b"", "There is no checkpoint at nothing-here, which"),
        (["embed", MODEL], b"", "There is no text: give TEXT, --input_file, or text on standard"),
        (["embed", MODEL], b"\xff", "Standard input is not UTF-8"),
        (["embed", MODEL, "x", f"--input_file={__file__}"], b"", "Give TEXT or --input_file, not"),
        (["embed", MODEL, "--input_file=none"], b"", "The text file none does not exist"),
        (["embed", MODEL, "x", "--output_file=x.txt"], b"", "x.txt must end in .npy"),
        (["fill-mask", MODEL, "x"], b"", "There is no [MASK] in the text 'x'; put one in."),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(arguments, stdin, message, albert):
    done = albert(*arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_vocabulary_is_extended(albert, tmp_path):
    (tmp_path / "words.txt").write_text("angiogram warfarin, the\n")
    given = [f"--input_file={tmp_path}/words.txt", f"--output_dir={tmp_path}/new"]
    done = albert("extend-vocabulary", MODEL, *given).ok()
    assert done.stdout == f"{tmp_path}/new: 2 new pieces.\n"
    assert "already exists" in albert("extend-vocabulary", MODEL, *given).stderr
    assert load_pretrained(f"{tmp_path}/new").tokenizer.vocab_size == 8002

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the SentencePiece library itself writes has no faults."""

import io
import time
from pathlib import Path

import pytest
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb2

import albert_tf
from albert_tf.tokenization.model_faults import model_fault

BUNDLED = sorted(Path(albert_tf.__file__).parent.glob("pretrained/*/spiece.model"))


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.parent.name)
def test_a_bundled_model_is_checked_within_milliseconds(path):
    model = pb2.ModelProto.FromString(path.read_bytes())
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert model_fault(model) == ""
        times.append(time.perf_counter() - start)
    assert min(times) < 0.1


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"])
def test_every_normalization_rule_is_accepted(rule):
    model = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(["abc def ghi"] * 20),
        model_writer=model,
        vocab_size=15,
        normalization_rule_name=rule,
        hard_vocab_limit=False,
        user_defined_symbols=["<x>", "<xy>"],
        minloglevel=2,
    )
    assert model_fault(pb2.ModelProto.FromString(model.getvalue())) == ""


def test_a_rule_of_the_users_own_is_accepted(tmp_path):
    rules = tmp_path / "rules.tsv"
    lines = (f"{' '.join(f'{c:X}' for c in b'a' * n)}\t62" for n in range(1, 25))
    rules.write_text("\n".join(lines))
    model = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(["bcd efg hij"] * 20),
        model_writer=model,
        vocab_size=15,
        normalization_rule_tsv=str(rules),
        hard_vocab_limit=False,
        minloglevel=2,
    )
    assert model_fault(pb2.ModelProto.FromString(model.getvalue())) == ""

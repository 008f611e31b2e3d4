# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary of each kind, and random texts that are hard to tokenize."""

import os
import random
from pathlib import Path

import pytest

from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.pretrained.locate import locate
from albert_tf.tokenization.tokenizer import Tokenizer

DATA = Path(os.environ.get("ALBERT_DATA_DIR", Path(__file__).parents[3] / "shared" / "data"))
RELEASED_MODEL = DATA / "spm" / "30k-clean.model"

needs_release = [
    pytest.mark.realdata,
    pytest.mark.skipif(not RELEASED_MODEL.exists(), reason=f"{RELEASED_MODEL} does not exist"),
]

WORDPIECE_LINE = (
    "[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] un ##aff ##able want ##want ##ed runn ##ing , ! the "
    "re ##sume ##m ##e 中 国 人 ##人 $ 5 ##0 straße i ##i ( x ) - οδος 2 ##1 ##3"
)
WORDPIECES = WORDPIECE_LINE.split()
SAMPLE_LINE = (
    "the people naïve cafe\u0301 ÉCOLE ½ ﬁne ﬃ Ǆ İstanbul ΟΔΟΣ straße ẛ̣ 2013, 1,000, 92, 9,9 "
    "(x) unaffable WANTED! 中国人 한국 が \u1100\u1161 😀 👩\u200d👩\u200d👧 --- ... “q” ¨ ﷺ é̱ ⅷ Å "
    "x y 5, ' = river, stone and bread; resume"
)
SAMPLE_WORDS = SAMPLE_LINE.split()
SAMPLE_SPACES = ["", " ", " ", "  ", "\t", "\xa0", "\u3000", "\r\n", "\u200b", "\x01", "\ufffd"]
SPACES = [*SAMPLE_SPACES, "\u2028", "\x85", "\x1c", "\0", "\n"]


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """A SentencePiece model in which pieces end in digit and comma.

    It is not trained here, as versions of sentencepiece train different pieces.
    """
    model = ModelProto.FromString(Path(locate("albert_tiny_books"), "spiece.model").read_bytes())
    special = [piece for piece in model.pieces if piece.type != piece.NORMAL]
    del model.pieces[len(special) :]
    for line in Path(__file__).with_name("pieces.tsv").read_text("utf-8").splitlines():
        piece, score = line.split("\t")
        model.pieces.add(piece=piece, score=float(score))
    model.trainer_spec.vocab_size = len(model.pieces)
    path = tmp_path_factory.mktemp("spm") / "small.model"
    path.write_bytes(model.SerializeToString())
    return str(path)


@pytest.fixture(scope="session")
def released():
    return Tokenizer.from_file(str(RELEASED_MODEL))


@pytest.fixture(scope="session")
def odd_texts() -> list[str]:
    """Words separated by odd white space, and random characters of Unicode 12, as in TensorFlow."""
    rng = random.Random(0)
    blocks = [(0, 0x250), (0x370, 0x530), (0x600, 0x660), (0xE00, 0xE80), (0x1E00, 0x2000)]
    blocks += [(0x2000, 0x2070), (0x3040, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00)]
    texts = []
    for _ in range(1500):
        parts = [rng.choice(SAMPLE_WORDS) + rng.choice(SPACES) for _ in range(rng.randrange(12))]
        texts.append("".join(parts))
        points = [rng.randrange(*rng.choice(blocks)) for _ in range(rng.randrange(12))]
        texts.append("".join(chr(point) for point in points))
    return texts


@pytest.fixture(scope="session")
def sentencepiece_tokenizer(small_model) -> Tokenizer:
    """A small SentencePiece model in which pieces end in digit and comma."""
    tokenizer = Tokenizer.from_file(small_model)
    assert tokenizer.digit_comma_parts
    return tokenizer


@pytest.fixture(scope="session")
def wordpiece_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text("\n".join(WORDPIECES) + "\n", "utf-8")
    return path


@pytest.fixture
def wordpiece(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDPIECES) + "\n", "utf-8")
    return Tokenizer.from_file(str(path))


@pytest.fixture(params=["small", pytest.param("released", marks=needs_release), "wordpiece"])
def tokenizer(request):
    if request.param == "small":
        return Tokenizer.from_file(request.getfixturevalue("small_model"))
    return request.getfixturevalue(request.param)


def random_texts(count, seed=0):
    """Yields words, numbers, accents, ligatures, CJK, emoji, odd spaces and control characters."""
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.randrange(1, 12)
        yield "".join(rng.choice(SAMPLE_WORDS) + rng.choice(SAMPLE_SPACES) for _ in range(words))


def spans_of(tokenizer, text):
    """Returns the ids, starts and ends of one text, as lists."""
    return next(tokenizer.encode_with_offsets([text])).tolist()

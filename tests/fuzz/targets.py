# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files that are fuzzed: a valid tiny one of each kind, and what a program does with it."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import sentencepiece as spm
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data import record_files, records, training_order
from albert_tf.data.context import InputContext, data_errors
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource
from albert_tf.huggingface.config import read_config
from albert_tf.huggingface.tokenizer import tokenizer_json
from albert_tf.io.text_files import read_lines
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.pretrained import archives
from albert_tf.tasks.classification.labels import label_set, label_values
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.glue.run import read_split
from albert_tf.tasks.glue.tasks import TASKS
from albert_tf.tasks.multiple_choice.data import read_questions, read_race
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.squad.data import answer_spans, read_squad
from albert_tf.tasks.tables import TextColumns, read_texts
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.monitors import MetricsLog
from albert_tf.weights.load import assign_weights, open_source
from albert_tf.weights.run_folder import (
    METRICS_FILE,
    SEEDS_FILE,
    TASK_FILE,
    BestRecord,
    RunFolder,
    find_checkpoint,
    model_folder,
)
from albert_tf.weights.thresholds import THRESHOLDS_FILE, load_thresholds
from tests.data_prep import test_verify_records
from tests.io.test_text_files import COMPRESSORS
from tests.support.builders import tiny_config, vocabulary, write_tokenizer, write_vocabulary
from tests.support.weights import GOLDEN, write_model

WORDS = [*"abcdefgh", "##a", "##b"]
PIECES = vocabulary(WORDS)
CONFIG = tiny_config(
    len(PIECES), embedding_size=4, hidden_size=8, num_hidden_layers=2, intermediate_size=8,
    max_position_embeddings=16,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes:
      make: writes a valid file, with all that belongs to it, into a folder; gives its path.
      read: reads it, as a program would; is handed its path.
      is_json: whether values in it may be changed besides bytes.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    is_json: bool = False


def _write(name: str, content: str | object, folder: Path) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def written(name: str, content: str | object) -> Callable[[Path], Path]:
    return partial(_write, name, content)


# Records, their manifests, and what the builder keeps between its passes.


def _records(kind: str, with_manifest: bool, folder: Path) -> Path:
    if kind == "masked":
        features, columns = test_verify_records.FEATURES, test_verify_records.good_columns(6)
    else:
        features = records.compact_features(10, len(PIECES))
        columns = {
            "text_ids": [np.array([5, 6, 7, 8, 9])] * 6,
            "word_starts": [np.array([0b11111000], np.uint8)] * 6,
            "segment_lengths": np.array([[2, 3]] * 6),
        }
    path = folder / "shard.tfrecord"
    info = records.write_shard(str(path), records.encode_examples(columns, features))
    tokenizer = write_tokenizer(folder, WORDS)
    tokenizer.save(str(folder))
    options = {
        "max_predictions_per_seq": 3,
        "masked_lm_prob": 0.15,
        "ngram": 3,
        "favor_shorter_ngram": True,
        "do_whole_word_mask": True,
        "sentence_objective": "sop",
    }
    if with_manifest:
        name = "pretraining" if kind == "masked" else "compact_pretraining"
        spec = tokenizer.spec.to_dict()
        Manifest(name, features, [info], spec, options, {"instances": 6}).save(str(folder))
    return path


def _manifest(kind: str, folder: Path) -> Path:
    return _records(kind, True, folder).with_name("manifest.json")


def _open_records(path: Path) -> RecordSource:
    patterns = str(path.parent if (path.parent / "manifest.json").exists() else path)
    return open_records(patterns, CONFIG)


def _check_records(path: Path) -> None:
    source = _open_records(path)
    source.check()
    source.description  # noqa: B018


def _payload(kind: str, folder: Path) -> Path:
    """A serialized example; the shard around it has the right checksums."""
    shard = _records(kind, True, folder)
    path = folder / "example"
    path.write_bytes(next(record_files.read_examples(str(shard))))
    return path


#: By folder; building the input pipeline takes longer than reading two records.
_SOURCES: dict[Path, tuple[RecordSource, tf.data.Dataset]] = {}


def _check_payload(path: Path) -> None:
    shard = path.with_name("shard.tfrecord")
    if path.parent not in _SOURCES:
        source = _open_records(shard)
        # The check of lengths would refuse payloads of other sizes.
        with mock.patch.object(training_order, "check_lengths", lambda path, offset, size: size):
            _SOURCES[path.parent] = source, source.eval_input_fn(InputContext(2))
    source, batches = _SOURCES[path.parent]
    records.write_shard(str(shard), [path.read_bytes()] * 2)
    # As the Estimator reads it.
    with data_errors(source.eval_input_fn):
        for _ in batches:
            pass


_RECORDS = {
    "masked records": Target(partial(_records, "masked", False), _check_records),
    "compact records": Target(partial(_records, "compact", True), _check_records),
    "manifest of masked records": Target(partial(_manifest, "masked"), _check_records, True),
    "manifest of compact records": Target(partial(_manifest, "compact"), _check_records, True),
    "payload of a masked record": Target(partial(_payload, "masked"), _check_payload),
    "payload of a compact record": Target(partial(_payload, "compact"), _check_payload),
}


# Texts and tables, plain and compressed.

_TEXT = "a b cab. A b, 2013, d!\n\nabc def\n"
_TABLE = 'id\ttext\tpair\tlabel\n1\ta "b\tc\t1\n2\td\te\t0\n'
_JSON_LINES = "".join(
    json.dumps({"id": i, "text": "a b", "pair": "c", "label": label}) + "\n"
    for i, label in enumerate("xyx")
)


def _text(suffix: str, folder: Path) -> Path:
    path = folder / f"text.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix]((_TEXT * 30).encode()))
    return path


def _read_lines(path: Path) -> None:
    list(read_lines(str(path)))


def _read_table(path: Path) -> None:
    columns = TextColumns("text", "pair", "label", "id")
    examples = read_texts(str(path), columns)
    labels = label_set(examples)
    label_values(examples, labels if "x" in labels else ())


_TEXTS = {
    **{f"text{suffix}": Target(partial(_text, suffix), _read_lines) for suffix in COMPRESSORS},
    "tsv": Target(written("t.tsv", _TABLE), _read_table),
    "csv": Target(written("t.csv", 'id,text,pair,label\n1,"a ""b",c,1\n2,d,e,0\n'), _read_table),
    "jsonl": Target(written("t.jsonl", _JSON_LINES), _read_table),
}


# The files of GLUE, SQuAD and RACE, and predictions for them.

_ANSWER = {"text": "(very) old", "answer_start": 25}
_QAS = [
    {"id": "q1", "question": "How old?", "is_impossible": False, "answers": [_ANSWER]},
    {"id": "q2", "question": "Why?", "is_impossible": True, "answers": []},
]
_PARAGRAPH = {"context": "The river is long. It is (very) old.", "qas": _QAS}
_SQUAD = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [_PARAGRAPH]}]}
_ARTICLE = {
    "id": "high1.txt",
    "article": "A b c.",
    "questions": ["What _ ?", "Why?"],
    "options": [[*"abcd"], [*"efgh"]],
    "answers": ["A", "D"],
}
_QUESTION = {"id": 3, "context": "A b.", "question": "c?", "options": [*"abcd"], "label": 2}


def _read_squad(path: Path) -> None:
    for question in read_squad(str(path)):
        for answer in question.answers:
            answer_spans(question.context, answer)


def _race(folder: Path) -> Path:
    _write("dev/middle/1.txt", {**_ARTICLE, "id": "middle1.txt"}, folder)
    return _write("dev/high/1.txt", _ARTICLE, folder)


def _glue(name: str, content: str) -> Target:
    split = TASKS[name].splits["dev"]
    return Target(
        written(split.file, content), lambda path: read_split(split, str(path.parents[1]))
    )


_TASKS = {
    "CoLA": _glue("cola", "gj04\t1\t\ta b.\ngj05\t0\t*\tc d.\n"),
    "RTE": _glue("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n"),
    "QQP": _glue("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n"),
    "STS-B": _glue(
        "sts-b",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tn\tf\t2012\t1\tx\ty\ta\tb\t3.5\n",
    ),
    "SQuAD": Target(written("dev.json", _SQUAD), _read_squad, True),
    "RACE": Target(_race, lambda path: read_race(str(path.parents[2]), "dev"), True),
    "multiple choice": Target(
        written("q.jsonl", _QUESTION), lambda path: read_questions(str(path)), True
    ),
}


# Configurations, vocabularies, weights in all formats, archives.


def _sentencepiece(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh2013,"), rng.integers(1, 6))) for _ in range(300)]
    model = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter([" ".join(words[i : i + 9]) for i in range(0, 300, 9)]),
        model_writer=model,
        vocab_size=60,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        pad_piece="<pad>",
        minloglevel=2,
    )
    path = folder / "tiny.model"
    path.write_bytes(model.getvalue())
    return path


def _use_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_batch([_TEXT, "", "ﬁ½ 2013,"])
    next(tokenizer.encode_with_offsets([_TEXT]))
    tokenizer.decode(tokenizer.encode(_TEXT))


def _tokenizer_json(folder: Path) -> Path:
    return Path(write_tokenizer(folder, WORDS).save(str(folder)))


def _hugging_face_tokenizer(folder: Path) -> Path:
    model = _sentencepiece(folder)
    values = tokenizer_json(Tokenizer.from_file(str(model)))
    model.unlink()
    return _write("tokenizer.json", values, folder)


def _release(name: str, folder: Path) -> Path:
    """The TF1 release's checkpoint; returns the path of one of its files."""
    shutil.copytree(GOLDEN / "tf1_tiny", folder, dirs_exist_ok=True)
    return folder / name


@functools.cache
def _golden_model() -> AlbertPretrainer:
    """Returns a model with the golden models' sizes."""
    return AlbertPretrainer(AlbertConfig.from_json(str(GOLDEN / "tf1_tiny/albert_config.json")))


def _load(path: Path) -> None:
    source = open_source(str(path.parent))
    source.config()
    source.tokenizer()
    str(assign_weights(source, _golden_model().named_weights()))


def _own(name: str, folder: Path) -> Path:
    return Path(write_model(folder, _golden_model()), name)


def _hugging_face(name: str, folder: Path) -> Path:
    for file in ("config.json", "model.safetensors"):
        shutil.copyfile(GOLDEN / "hf_tiny" / file, folder / file)
    write_vocabulary(folder, WORDS)
    cased = {"do_lower_case": True, "strip_accents": None, "keep_accents": False}
    _write("tokenizer_config.json", cased, folder)
    return folder / name


def _archive(folder: Path) -> Path:
    path = folder / "release.tar.gz"
    with tarfile.open(path, "w:gz") as f:
        f.add(GOLDEN / "tf1_tiny/albert_config.json", "tiny/albert_config.json")
        f.add(GOLDEN / "tf1_tiny/checkpoint", "tiny/checkpoint")
    return path


def _unpack(path: Path) -> None:
    archives._unpack.cache_clear()
    archives.unpack(str(path))


def _zip_archive(folder: Path) -> Path:
    path = folder / "release.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as f:
        for name in ("albert_config.json", "checkpoint"):
            f.write(GOLDEN / "tf1_tiny" / name, f"tiny/{name}")
    return path


_MODELS = {
    "model configuration": Target(
        written("albert_config.json", CONFIG.to_dict()),
        lambda path: AlbertConfig.load(str(path)).count_parameters(),
        True,
    ),
    "Hugging Face configuration": Target(
        partial(_hugging_face, "config.json"), lambda path: read_config(str(path)), True
    ),
    "Hugging Face tokenizer configuration": Target(
        partial(_hugging_face, "tokenizer_config.json"), _load, True
    ),
    "safetensors": Target(partial(_hugging_face, "model.safetensors"), _load),
    "WordPiece vocabulary": Target(written("vocab.txt", "\n".join(PIECES)), _use_tokenizer),
    "SentencePiece model": Target(_sentencepiece, _use_tokenizer),
    "tokenizer.json": Target(_tokenizer_json, _use_tokenizer, True),
    "tokenizer.json of Hugging Face": Target(_hugging_face_tokenizer, _use_tokenizer, True),
    "index of a TF1 checkpoint": Target(partial(_release, "model.ckpt-best.index"), _load),
    "data of a TF1 checkpoint": Target(
        partial(_release, "model.ckpt-best.data-00000-of-00001"), _load
    ),
    "checkpoint file of a release": Target(partial(_release, "checkpoint"), _load),
    "index of a checkpoint": Target(partial(_own, "ckpt.index"), _load),
    "data of a checkpoint": Target(partial(_own, "ckpt.data-00000-of-00001"), _load),
    "archive.tar.gz": Target(_archive, _unpack),
    "archive.zip": Target(_zip_archive, _unpack),
}


# What a run or a fine-tuned model keeps in its folder.


def _best(folder: Path) -> Path:
    (folder / "best").mkdir(exist_ok=True)
    (folder / "best/ckpt-4.index").write_bytes(b"")
    BestRecord(4, "accuracy", 0.5, "ckpt-4").save(str(folder / "best"))
    return folder / "best/best.json"


def _task_file(folder: Path) -> Path:
    spec = ClassificationSpec(("a", "b"), 16)
    TextClassificationTask(CONFIG, write_tokenizer(folder, WORDS), spec).save_files(str(folder))
    return folder / TASK_FILE


def _store(folder: Path) -> CheckpointStore:
    weights = _golden_model().named_weights()
    some = {name: weights[name] for name in sorted(weights)[:2]}
    return CheckpointStore(RunFolder(str(folder)), some, {}, keep_max=2)


def _checkpoint(name: str, folder: Path) -> Path:
    """A run of a few steps in an output directory."""
    (folder / "checkpoints").mkdir(exist_ok=True)
    _store(folder).save(4)
    return folder / "checkpoints" / name


def _restore(path: Path) -> None:
    store = _store(path.parents[1])
    if store.folder.checkpoints():
        store.restore_newest()


_RUNS = {
    "record of the best": Target(_best, lambda path: find_checkpoint(str(path.parents[1])), True),
    "record of the seeds": Target(
        written(SEEDS_FILE, {"best": "seed-1", "seeds": [1, 2]}),
        lambda path: model_folder(str(path.parent)),
        True,
    ),
    "metrics.jsonl": Target(
        written(METRICS_FILE, '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n'),
        lambda path: MetricsLog(RunFolder(str(path.parent)), 1),
    ),
    "task.json": Target(
        _task_file, lambda path: TextClassificationTask.load(str(path.parent)), True
    ),
    "thresholds": Target(
        written(THRESHOLDS_FILE, {"thresholds": {"x": -1.5}, "checkpoint": None}),
        lambda path: load_thresholds(RunFolder(str(path.parent)), ["x"]),
        True,
    ),
    "checkpoint file of a run": Target(partial(_checkpoint, "checkpoint"), _restore),
    "index of a run's checkpoint": Target(partial(_checkpoint, "ckpt-4.index"), _restore),
}

TARGETS = {**_RECORDS, **_TEXTS, **_TASKS, **_MODELS, **_RUNS}

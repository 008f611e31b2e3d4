# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files that are fuzzed: a valid tiny one of each kind, and what a program does with it."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.convert import archive, huggingface
from albert_tf.convert.checkpoint import write_tf2
from albert_tf.convert.checkpoint_files import find_checkpoint
from albert_tf.convert.load import open_source
from albert_tf.convert.source import assign_weights
from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource, record_files
from albert_tf.data.text_tables import TextColumns, read_text_table
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks import pretraining
from albert_tf.tasks.classification_features import label_set, label_values
from albert_tf.tasks.fine_tune import SEEDS_FILE, model_folder
from albert_tf.tasks.finetuning import TASK_FILE
from albert_tf.tasks.glue.data import describe
from albert_tf.tasks.glue.registry import GLUE_TASKS
from albert_tf.tasks.glue.submission import read_predictions
from albert_tf.tasks.multiple_choice.data import check_labelled, read_questions, read_race
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.multiple_choice.task import load_task as load_multiple_choice
from albert_tf.tasks.squad.data import Question, answer_span, read_squad
from albert_tf.tasks.squad.evaluation import THRESHOLDS_FILE, load_threshold
from albert_tf.tasks.squad.scoring import score
from albert_tf.tasks.squad.task import SquadTask, load_squad_task
from albert_tf.tasks.text_classification import ClassificationSpec
from albert_tf.text_files import read_lines
from albert_tf.tokenization import Tokenizer
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.data_errors import data_errors
from albert_tf.training.monitors import METRICS_FILE, MetricsLog
from albert_tf.training.specs import InputContext
from data_prep.spill import Document, Runs, SpillWriter, read_bucket

GOLDEN = Path(__file__).parents[1] / "golden"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b"]
CONFIG = {
    "vocab_size": len(PIECES),
    "embedding_size": 4,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
TEXT = "a b cab. A b, 2013, d!\n\nabc def\n"


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


def _written(name: str, content: str | bytes | object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content
        if not isinstance(data, (str, bytes)):
            data = json.dumps(data)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return make


# ---- Records ---------------------------------------------------------------------------------


def _vocabulary(folder: Path) -> Tokenizer:
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    return Tokenizer.from_file(str(folder / "vocab.txt"))


def _masked_columns(n: int) -> dict[str, np.ndarray]:
    row = {
        "input_ids": [2, 5, 4, 7, 3, 8, 4, 3, 0, 0],
        "input_mask": [1] * 8 + [0] * 2,
        "segment_ids": [0] * 5 + [1] * 3 + [0] * 2,
        "token_boundary": [1] * 8 + [0] * 2,
        "masked_lm_positions": [2, 6, 0],
        "masked_lm_ids": [6, 5, 0],
        "masked_lm_weights": [1.0, 1.0, 0.0],
        "next_sentence_labels": 1,
    }
    return {name: np.array([value] * n) for name, value in row.items()}


def _compact_columns(n: int) -> dict[str, object]:
    return {
        "text_ids": [np.array([5, 6, 7, 8, 9])] * n,
        "word_starts": [np.array([0b11111000], np.uint8)] * n,
        "segment_lengths": np.array([[2, 3]] * n),
    }


def _records(kind: str, with_manifest: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if kind == "masked":
            features, columns = records.pretraining_features(10, 3), _masked_columns(6)
        else:
            features, columns = records.compact_features(10, len(PIECES)), _compact_columns(6)
        path = folder / "shard.tfrecord"
        info = records.write_shard(str(path), records.encode_examples(columns, features))
        tokenizer = _vocabulary(folder)
        tokenizer.save(str(folder))
        options = {
            "max_predictions_per_seq": 3,
            "masked_lm_prob": 0.15,
            "ngram": 3,
            "favor_shorter_ngram": True,
            "do_whole_word_mask": True,
            "sentence_objective": "sop",
            "input_files": [{"path": "/corpus/a.txt", "bytes": 7}],
        }
        if with_manifest:
            name = "pretraining" if kind == "masked" else "compact_pretraining"
            spec = tokenizer.spec.to_dict()
            Manifest(name, features, [info], spec, options, {"instances": 6}).save(str(folder))
        return path

    return make


def _manifest(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return _records(kind, True)(folder).with_name("manifest.json")

    return make


def _open_records(path: Path, limit: int = 0) -> RecordSource:
    config = AlbertConfig(**CONFIG)
    patterns = str(path.parent if (path.parent / "manifest.json").exists() else path)
    return pretraining.open_records(patterns, config, max_corrupt_records=limit)


def _pass_over_corrupt_records(path: Path) -> None:
    source = _open_records(path, limit=4)
    source.check()
    source.description  # noqa: B018


def _check_records(path: Path) -> None:
    source = _open_records(path)
    source.check()
    source.description  # noqa: B018


# ---- Texts -----------------------------------------------------------------------------------

_SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "The river is long. It is (very) old.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "How old?",
                            "is_impossible": False,
                            "answers": [{"text": "(very) old", "answer_start": 25}],
                        },
                        {"id": "q2", "question": "Why?", "is_impossible": True, "answers": []},
                    ],
                }
            ],
        }
    ],
}
_ARTICLE = {
    "id": "high1.txt",
    "article": "A b c.",
    "questions": ["What _ ?", "Why?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
    "answers": ["A", "D"],
}
_QUESTION = {
    "id": 3,
    "context": "A b.",
    "question": "c?",
    "options": ["a", "b", "c", "d"],
    "label": 2,
}


def _read_squad(path: Path) -> None:
    for question in read_squad(str(path), version="2.0"):
        for answer in question.answers:
            answer_span(question, answer)


def _read_race(path: Path) -> None:
    check_labelled(read_race(str(path.parents[2]), "dev", ("high",)))


def _read_questions(path: Path) -> None:
    check_labelled(read_questions(str(path), 4))


def _read_table(path: Path) -> None:
    columns = TextColumns("text", "pair", "label", "id")
    examples = read_text_table(str(path), columns)
    labels = label_set(examples)
    label_values(examples, labels if "x" in labels else ())


def _glue(name: str, content: str) -> Target:
    task = next(task for task in GLUE_TASKS if task.name == name)
    file = task.of("dev")[0].file if task.of("dev") else task.splits[0].file
    return Target(_written(file, content), lambda path: describe(task, str(path.parents[1])))


def _read_server_predictions(path: Path) -> None:
    task = next(task for task in GLUE_TASKS if task.name == "rte")
    split = dataclasses.replace(task.of("test")[0], rows=2)
    read_predictions(str(path), task, split)


_TABLE = 'id\ttext\tpair\tlabel\n1\ta "b\tc\t1\n2\td\te\t0\n'
_JSON_LINES = "".join(
    json.dumps({"id": i, "text": "a b", "pair": "c", "label": label}) + "\n"
    for i, label in enumerate("xyx")
)


def _compressed(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import bz2
        import gzip
        import lzma

        compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
        path = folder / f"text.txt{suffix}"
        path.write_bytes(compress((TEXT * 30).encode()))
        return path

    return make


# ---- Models ----------------------------------------------------------------------------------


def _sentencepiece(folder: Path) -> Path:
    import sentencepiece as spm

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
    tokenizer.encode_batch([TEXT, "", "ﬁ½ 2013,"])
    tokenizer.encode_with_offsets(TEXT)
    tokenizer.decode(tokenizer.encode(TEXT))


def _tokenizer_json(folder: Path) -> Path:
    return Path(_vocabulary(folder).save(str(folder)))


def _config(path: Path) -> None:
    AlbertConfig.load(str(path)).count_parameters()


def _release(*names: str) -> Callable[[Path], Path]:
    """The checkpoint of the TF1 release's programs; `names[0]` is to be damaged."""

    def make(folder: Path) -> Path:
        for name in os.listdir(GOLDEN / "tf1_tiny"):
            shutil.copyfile(GOLDEN / "tf1_tiny" / name, folder / name)
        return folder / names[0]

    return make


_WEIGHTS: dict[str, dict[str, tf.Variable]] = {}


def _weights(folder: Path) -> dict[str, tf.Variable]:
    if str(folder) not in _WEIGHTS:
        config = json.loads((folder / "albert_config.json").read_text())
        _WEIGHTS[str(folder)] = AlbertPretrainer(AlbertConfig.from_dict(config)).named_weights()
    return _WEIGHTS[str(folder)]


def _load(path: Path) -> None:
    source = open_source(str(path.parent))
    report = assign_weights(source, _weights(GOLDEN / "tf1_tiny"))
    str(report)
    source.config()
    source.tokenizer()


def _load_own(path: Path) -> None:
    folder = path.parent
    source = open_source(str(folder))
    source.config()
    source.tokenizer()
    assign_weights(source, _weights(GOLDEN / "tf1_tiny"))


def _own(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        weights = {k: v.numpy() for k, v in _weights(GOLDEN / "tf1_tiny").items()}
        config = AlbertConfig.from_json(str(GOLDEN / "tf1_tiny/albert_config.json"))
        write_tf2(str(folder), config, None, weights)
        return folder / name

    return make


def _best(folder: Path) -> Path:
    (folder / "best").mkdir(exist_ok=True)
    (folder / "best/ckpt-4.index").write_bytes(b"")
    record = {"step": 4, "metric": "accuracy", "value": 0.5, "checkpoint": "ckpt-4"}
    return _written("best/best.json", record)(folder)


def _hugging_face(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(GOLDEN / "hf_tiny" / file, folder / file)
        (folder / "vocab.txt").write_text("\n".join(PIECES))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": True, "strip_accents": None, "keep_accents": False})
        )
        return folder / name

    return make


def _load_hugging_face(path: Path) -> None:
    source = open_source(str(path.parent))
    source.config()
    source.tokenizer()
    assign_weights(source, _weights(GOLDEN / "tf1_tiny"))


def _archive(folder: Path) -> Path:
    path = folder / "release.tar.gz"
    with tarfile.open(path, "w:gz") as f:
        f.add(GOLDEN / "tf1_tiny/albert_config.json", "tiny/albert_config.json")
        f.add(GOLDEN / "tf1_tiny/checkpoint", "tiny/checkpoint")
    return path


def _unpack(path: Path) -> None:
    archive._unpacked.clear()
    archive.unpack(str(path))


def _plain_archive(folder: Path) -> Path:
    path = folder / "release.tar"
    with tarfile.open(path, "w") as f:
        f.add(GOLDEN / "tf1_tiny/albert_config.json", "tiny/albert_config.json")
    return path


_CLASSIFIER = {
    "task": "text_classification",
    "labels": ["a", "b"],
    "max_seq_length": 16,
    "columns": {"text": "text", "text_pair": None, "label": "label", "id": None},
    "task_name": "custom",
    "best_metric": None,
}


def _task_file(value: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "vocab.txt").write_text("\n".join(PIECES))
        Tokenizer.from_file(str(folder / "vocab.txt")).save(str(folder))
        (folder / "albert_config.json").write_text(json.dumps(CONFIG))
        return _written(TASK_FILE, value)(folder)

    return make


def _payload(kind: str) -> Callable[[Path], Path]:
    """A serialized example; the shard around it has the right checksums."""

    def make(folder: Path) -> Path:
        shard = _records(kind, True)(folder)
        path = folder / "example"
        path.write_bytes(next(records.read_examples(str(shard))))
        return path

    return make


#: By folder; building the input pipeline takes longer than reading two records.
_SOURCES: dict[Path, tuple[RecordSource, tf.data.Dataset]] = {}


def _check_payload(path: Path) -> None:
    shard = path.with_name("shard.tfrecord")
    if path.parent not in _SOURCES:
        source = _open_records(shard)
        _SOURCES[path.parent] = source, source.eval_input_fn(InputContext(2))
    source, batches = _SOURCES[path.parent]
    records.write_shard(str(shard), [path.read_bytes()] * 2)
    # As the Estimator reads it.
    with data_errors(source.check):
        for _ in batches:
            pass


def _safetensors_header(folder: Path) -> Path:
    data = (GOLDEN / "hf_tiny/model.safetensors").read_bytes()
    _hugging_face("config.json")(folder)
    path = folder / "header.json"
    path.write_bytes(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return path


def _load_safetensors_header(path: Path) -> None:
    data = (GOLDEN / "hf_tiny/model.safetensors").read_bytes()
    rest = data[8 + int.from_bytes(data[:8], "little") :]
    header = path.read_bytes()
    whole = len(header).to_bytes(8, "little") + header + rest
    path.with_name("model.safetensors").write_bytes(whole)
    _load_hugging_face(path)


_SQUAD_TASK = {
    "task": SquadTask.name,
    "version": "2.0",
    "head": "beam",
    "n_best_size": 20,
    "max_answer_length": 30,
    "start_n_top": 5,
    "end_n_top": 5,
    "compat": False,
    "max_seq_length": 16,
    "doc_stride": 4,
    "max_query_length": 6,
}
_RACE_TASK = {
    "task": MultipleChoiceTask.name,
    "num_choices": 4,
    "max_seq_length": 16,
    "max_qa_length": 8,
}


def _questions(path: Path) -> list[Question]:
    return read_squad(str(_written("squad/dev.json", _SQUAD)(path.parent)), version="2.0")


def _score_predictions(path: Path) -> None:
    score(_questions(path), files.read_object(str(path)), version="2.0")


def _score_odds(path: Path) -> None:
    answers = {"q1": "very old", "q2": ""}
    score(_questions(path), answers, version="2.0", null_odds=files.read_object(str(path)))


def _spill(folder: Path) -> Path:
    writer = SpillWriter(str(folder), 3)
    for number in range(5):
        lengths = np.array([2, 3], np.int32)
        writer.add(Document(number, lengths, np.arange(5, dtype=np.int32)))
    writer.finish()
    return Path(Runs.path(str(folder), 0, 0))


def _read_spill(path: Path) -> None:
    for bucket in range(3):
        read_bucket(str(path.parent), Runs(num_buckets=3, num_files=1), [bucket])


def _run_folder(name: str) -> Callable[[Path], Path]:
    """A run of a few steps in an output directory."""

    def make(folder: Path) -> Path:
        (folder / "checkpoints").mkdir(exist_ok=True)
        weights = _weights(GOLDEN / "tf1_tiny")
        some = {name: weights[name] for name in sorted(weights)[:2]}
        _store(folder, some).save(4)
        return folder / name

    return make


def _store(folder: Path, weights: dict[str, tf.Variable]) -> CheckpointStore:
    optimizer = tf.keras.optimizers.legacy.SGD()
    return CheckpointStore(str(folder), weights, optimizer, {}, keep_max=2)


def _restore(path: Path) -> None:
    weights = _weights(GOLDEN / "tf1_tiny")
    store = _store(path.parents[1], {name: weights[name] for name in sorted(weights)[:2]})
    if store.latest():
        store.restore_newest()


TARGETS = {
    "masked records": Target(_records("masked", False), _check_records),
    "masked records passed over": Target(_records("masked", False), _pass_over_corrupt_records),
    "compact records": Target(_records("compact", True), _check_records),
    "compact records passed over": Target(_records("compact", True), _pass_over_corrupt_records),
    "manifest of masked records": Target(_manifest("masked"), _check_records, True),
    "manifest of compact records": Target(_manifest("compact"), _check_records, True),
    "shards of a manifest": Target(
        _manifest("masked"), lambda path: record_files(str(path.parent)), True
    ),
    "payload of a masked record": Target(_payload("masked"), _check_payload),
    "payload of a compact record": Target(_payload("compact"), _check_payload),
    "spilled tokens": Target(_spill, _read_spill),
    "text": Target(_written("text.txt", TEXT), lambda path: list(read_lines(str(path)))),
    **{
        f"text{suffix}": Target(_compressed(suffix), lambda path: list(read_lines(str(path))))
        for suffix in (".gz", ".bz2", ".xz")
    },
    "tsv": Target(_written("t.tsv", _TABLE), _read_table),
    "csv": Target(_written("t.csv", 'id,text,pair,label\n1,"a ""b",c,1\n2,d,e,0\n'), _read_table),
    "jsonl": Target(_written("t.jsonl", _JSON_LINES), _read_table),
    "CoLA": _glue("cola", "gj04\t1\t\ta b.\ngj05\t0\t*\tc d.\n"),
    "RTE": _glue("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n"),
    "QQP": _glue("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n"),
    "STS-B": _glue(
        "sts-b",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tn\tf\t2012\t1\tx\ty\ta\tb\t3.5\n",
    ),
    "GLUE predictions": Target(
        _written(
            "RTE.tsv",
            "id\tprediction\tentailment\tnot_entailment\n0\tentailment\t0.7\t0.3\n"
            "1\tentailment\t0.5\t0.5\n",
        ),
        _read_server_predictions,
    ),
    "SQuAD": Target(_written("dev.json", _SQUAD), _read_squad, True),
    "RACE": Target(_written("dev/high/1.txt", _ARTICLE), _read_race, True),
    "RACE in one file": Target(
        _written("dev/high/all.txt", json.dumps(_ARTICLE) + json.dumps(_ARTICLE)), _read_race
    ),
    "multiple choice": Target(_written("q.jsonl", json.dumps(_QUESTION)), _read_questions, True),
    "model configuration": Target(_written("albert_config.json", CONFIG), _config, True),
    "Hugging Face configuration": Target(
        _hugging_face("config.json"), lambda path: huggingface.read_config(str(path)), True
    ),
    "Hugging Face tokenizer configuration": Target(
        _hugging_face("tokenizer_config.json"), _load_hugging_face, True
    ),
    "safetensors": Target(_hugging_face("model.safetensors"), _load_hugging_face),
    "WordPiece vocabulary": Target(_written("vocab.txt", "\n".join(PIECES)), _use_tokenizer),
    "SentencePiece model": Target(_sentencepiece, _use_tokenizer),
    "tokenizer.json": Target(_tokenizer_json, _use_tokenizer, True),
    "index of a TF1 checkpoint": Target(_release("model.ckpt-best.index"), _load),
    "data of a TF1 checkpoint": Target(_release("model.ckpt-best.data-00000-of-00001"), _load),
    "checkpoint file of a release": Target(_release("checkpoint"), _load),
    "index of a checkpoint": Target(_own("ckpt.index"), _load_own),
    "data of a checkpoint": Target(_own("ckpt.data-00000-of-00001"), _load_own),
    "record of the best": Target(_best, lambda path: find_checkpoint(str(path.parents[1])), True),
    "record of the seeds": Target(
        _written(SEEDS_FILE, {"best": "seed-1", "seeds": [1, 2]}),
        lambda path: model_folder(str(path.parent)),
        True,
    ),
    "metrics.jsonl": Target(
        _written(METRICS_FILE, '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n'),
        lambda path: MetricsLog(str(path.parent), 1),
    ),
    "task.json of a classifier": Target(
        _task_file(_CLASSIFIER), lambda path: ClassificationSpec.load(str(path.parent)), True
    ),
    "thresholds": Target(
        _written(THRESHOLDS_FILE, {"null_threshold": -1.5, "found_on": "dev.json"}),
        lambda path: load_threshold(str(path.parent)),
        True,
    ),
    "task.json of SQuAD": Target(
        _task_file(_SQUAD_TASK), lambda path: load_squad_task(str(path.parent)), True
    ),
    "task.json of multiple choice": Target(
        _task_file(_RACE_TASK), lambda path: load_multiple_choice(str(path.parent)), True
    ),
    "header of safetensors": Target(_safetensors_header, _load_safetensors_header, True),
    "SQuAD predictions": Target(
        _written("p.json", {"q1": "very old", "q2": ""}), _score_predictions, True
    ),
    "null odds": Target(_written("odds.json", {"q1": -1.5, "q2": 2}), _score_odds, True),
    "checkpoint file of a run": Target(_run_folder("checkpoints/checkpoint"), _restore),
    "index of a run's checkpoint": Target(_run_folder("checkpoints/ckpt-4.index"), _restore),
    "archive.tar.gz": Target(_archive, _unpack),
    "archive.tar": Target(_plain_archive, _unpack),
}

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import collections
import json
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, find_task
from albert_tf.tasks.glue import __main__ as glue_command
from albert_tf.tasks.glue.data import describe, find_tasks, read_split

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("ALBERT_DATA_DIR", ROOT / "../shared/data")) / "glue"

A = ['Two "dogs run.', "It's  late 今", "Rain fell"]
B = ["Dogs move.", 'She said "no', "The day was dry, é"]
LABELS = {
    "sts-b": ["5.000", "0", "2.25"],
    "mnli": ["neutral", "contradiction", "entailment"],
    "qnli": ["entailment", "not_entailment", "entailment"],
    "rte": ["entailment", "not_entailment", "entailment"],
}
ALL_SPLITS = [(task.name, split.name) for task in GLUE_TASKS for split in task.splits]


@pytest.mark.parametrize(("name", "split_name"), ALL_SPLITS)
def test_every_layout_gives_texts_labels_and_ids(name, split_name, glue_dir):
    task = find_task(name)
    (split,) = (split for split in task.splits if split.name == split_name)
    examples, skipped = read_split(task, split, str(glue_dir))
    assert [e.text for e in examples] == A
    assert [e.text_pair for e in examples] == ([None] * 3 if name in ("cola", "sst-2") else B)
    unlabelled = split_name.startswith("test")
    expected = [None] * 3 if unlabelled else LABELS.get(name, ["1", "0", "1"])
    assert [e.label for e in examples] == expected
    assert [e.id for e in examples] == ["0", "1", "2"]
    first = 1 if name == "cola" and not unlabelled else 2
    assert examples[2].where == f"{glue_dir / split.file}:{first + 2}"
    assert skipped == []


def test_tasks_are_found_by_name_in_any_case():
    assert find_task("SST-2").title == "SST-2"
    assert [task.name for task in GLUE_TASKS] == (
        ["cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]
    )
    with pytest.raises(AlbertError, match="no GLUE task 'snli'; the tasks are cola, sst-2"):
        find_task("snli")


def test_tasks_are_found_by_their_folders(glue_dir, tmp_path):
    assert len(find_tasks(str(glue_dir))) == 10
    (tmp_path / "some/RTE").mkdir(parents=True)
    assert [task.name for task in find_tasks(str(tmp_path / "some"))] == ["rte"]
    with pytest.raises(AlbertError, match="holds no GLUE task"):
        find_tasks(str(tmp_path / "some/RTE"))


def test_broken_rows_of_qqp_are_left_out_and_counted(glue_dir):
    path = glue_dir / "QQP/train.tsv"
    lines = path.read_text("utf-8").splitlines()
    lines[2:3] = ["91\t1\t2\tIt's", "late\tno\t0"]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    task = find_task("qqp")
    examples, skipped = read_split(task, task.splits[0], str(glue_dir))
    assert [e.label for e in examples] == ["1", "1"]
    assert skipped == [f"{path}:3", f"{path}:4"]
    assert describe(task, str(glue_dir))["splits"]["train"]["skipped_rows"] == 2


def test_a_broken_row_of_qqp_s_test_set_is_an_error_because_every_row_needs_an_answer(glue_dir):
    path = glue_dir / "QQP/test.tsv"
    path.write_text("id\tquestion1\tquestion2\n0\tWhy?\n", "utf-8")
    task = find_task("qqp")
    with pytest.raises(AlbertError, match=r"test\.tsv:2: 2 fields, but the table has 3"):
        read_split(task, task.of("test")[0], str(glue_dir))


BAD = {
    "no header": ("rte", "0\tA\tB\tentailment\n", "has no column 'sentence1'; it has 0, A, B, ent"),
    "other task": (
        "mrpc",
        "sentence\tlabel\nA\t1\n",
        "has no column '#1 String'; it has sent",
    ),
    "empty": ("rte", "", "holds no examples"),
    "only a header": ("sst-2", "sentence\tlabel\n", "holds no examples"),
    "short row": ("sst-2", "sentence\tlabel\nA\t1\nB\n", ":3: 1 fields, but the table has 2"),
    "long row": ("cola", "a\t1\t\tA\tB\n", ":1: 5 fields, but the table has 4"),
    "unknown label": ("cola", "a\t1\t\tA\na\t2\t\tB\n", ":2: CoLA has no label '2'; it has 0, 1"),
    "no gold label": (
        "qnli",
        "index\tquestion\tsentence\tlabel\n0\tA\tB\t-\n",
        ":2: QNLI has no label '-'",
    ),
    "no number": (
        "sts-b",
        "index\tsentence1\tsentence2\tscore\n0\tA\tB\tx\n",
        ":2: the score 'x' is not a number from 0 to 5",
    ),
    "out of range": (
        "sts-b",
        "index\tsentence1\tsentence2\tscore\n0\tA\tB\t5.1\n",
        ":2: the score '5.1' is not",
    ),
    "not a number": ("sts-b", "sentence1\tsentence2\tscore\nA\tB\tnan\n", "the score 'nan' is not"),
    "not UTF-8": ("sst-2", b"sentence\tlabel\n\xff\t1\n", ":2: not UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_one_sentence_with_its_line(case, tmp_path):
    name, content, message = BAD[case]
    task = find_task(name)
    path = tmp_path / task.splits[0].file
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AlbertError) as error:
        read_split(task, task.splits[0], str(tmp_path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_missing_file_and_missing_folder_are_named(tmp_path):
    task = find_task("rte")
    with pytest.raises(AlbertError, match=r"RTE/train\.tsv does not exist"):
        read_split(task, task.splits[0], str(tmp_path))
    with pytest.raises(AlbertError, match="`data_dir` is needed"):
        read_split(task, task.splits[0], None)
    with pytest.raises(AlbertError, match=r"has no file of RTE, such as RTE/train\.tsv"):
        describe(task, str(tmp_path))


class StandInDatasets(types.ModuleType):
    """Stands in for tensorflow_datasets, which is no dependency and needs a download."""

    def __init__(self):
        super().__init__("tensorflow_datasets")
        self.asked = []

    def load(self, name, split, data_dir, with_info):
        self.asked.append((name, split, data_dir))
        names = {
            "glue/sst2": ["negative", "positive"],
            "glue/mnli": ["entailment", "neutral", "contradiction"],
        }.get(name)
        label = types.SimpleNamespace(names=names) if names else types.SimpleNamespace()
        info = types.SimpleNamespace(features={"label": label})
        first, second = {
            "glue/sst2": ("sentence", "unused"),
            "glue/mnli": ("premise", "hypothesis"),
            "glue/stsb": ("sentence1", "sentence2"),
        }[name]
        kind = np.int64 if names else np.float32
        rows = [
            {
                first: A[i].encode(),
                second: B[i].encode(),
                "label": kind(-1 if split.startswith("test") else [1, 0, 1][i]),
                "idx": np.int32(i),
            }
            for i in (2, 0, 1)
        ]
        return rows, info

    def as_numpy(self, dataset):
        return dataset


@pytest.mark.parametrize(
    ("name", "split", "asked", "labels"),
    [
        ("sst-2", "train", ("glue/sst2", "train"), ["1", "0", "1"]),
        ("mnli", "dev_matched", ("glue/mnli", "validation_matched"), ["neutral", "entailment"]),
        ("mnli", "test_mismatched", ("glue/mnli", "test_mismatched"), [None, None]),
        ("sts-b", "dev", ("glue/stsb", "validation"), ["1", "0", "1"]),
    ],
)
def test_tensorflow_datasets_give_what_the_files_give(name, split, asked, labels, monkeypatch):
    module = StandInDatasets()
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
    task = find_task(name)
    (chosen,) = (s for s in task.splits if s.name == split)
    examples, _ = read_split(task, chosen, "/data", source="tfds")
    assert module.asked == [(*asked, "/data")]
    assert [e.text for e in examples] == A
    assert [e.text_pair for e in examples] == ([None] * 3 if name == "sst-2" else B)
    assert [e.label for e in examples][: len(labels)] == labels
    assert [e.id for e in examples] == ["0", "1", "2"]


def test_without_tensorflow_datasets_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    task = find_task("rte")
    with pytest.raises(AlbertError, match="pip install tensorflow-datasets"):
        read_split(task, task.splits[0], None, source="tfds")


def test_inspect_prints_one_json_object(glue_dir, run_script):
    (glue_dir / "STS-B/test.tsv").unlink()
    done = run_script(glue_command, "inspect", "--task_name=sts-b", f"--data_dir={glue_dir}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["splits"]["test"] is None
    assert found["splits"]["dev"] == {
        "file": "STS-B/dev.tsv",
        "rows": 3,
        "skipped_rows": 0,
        "labels": {"min": 0.0, "mean": 2.4167, "max": 5.0},
        "lengths": {"mean": 6.0, "median": 6.0, "95%": 6.9, "max": 7},
    }


def test_unknown_command_and_task_exit_with_status_1(run_script):
    done = run_script(glue_command, "inspekt")
    assert done.returncode == 1
    assert "error: the first argument must be inspect or make_submission" in done.stderr
    done = run_script(glue_command, "inspect", "--task_name=snli", "--data_dir=x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: There is no GLUE task 'snli'")


REAL_ROWS = {
    "cola": ("CoLA", 8551, 1043),
    "sst-2": ("SST-2", 67349, 872),
    "rte": ("RTE", 2490, 277),
    "wnli": ("WNLI", 635, 71),
    "sts-b": ("STS-B", 5749, 1500),
}


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent (set ALBERT_DATA_DIR)")
@pytest.mark.parametrize("name", REAL_ROWS)
def test_real_files_have_the_published_numbers_of_rows(name):
    task = find_task(name)
    folder, train_rows, dev_rows = REAL_ROWS[name]
    splits = describe(task, str(DATA))["splits"]
    assert splits["train"]["file"] == f"{folder}/train.tsv"
    assert [splits[n]["rows"] for n in ("train", "dev")] == [train_rows, dev_rows]
    assert splits["test"]["rows"] == task.of("test")[0].rows
    assert [splits[n]["skipped_rows"] for n in splits] == [0, 0, 0]
    labels = splits["train"]["labels"]
    if task.labels:
        assert sum(labels.values()) == train_rows
        assert task.majority == max(labels, key=labels.get)
    else:
        assert labels["mean"] == pytest.approx(float(task.majority), abs=5e-4)


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent (set ALBERT_DATA_DIR)")
def test_quotes_in_real_data_swallow_no_rows():
    """CoLA's and RTE's sentences hold unbalanced quotes, which a CSV reader would join."""
    task = find_task("rte")
    examples, _ = read_split(task, task.splits[0], str(DATA))
    odd = collections.Counter(e.text.count('"') % 2 for e in examples)
    assert odd[1] > 0
    assert [int(e.where.rpartition(":")[2]) for e in examples] == list(range(2, 2492))

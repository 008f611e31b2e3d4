# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.glue.run import find_tasks, read_split
from albert_tf.tasks.glue.tasks import GLUE_TASKS, find_glue_task
from tests.tasks.glue.conftest import BINARY, ENTAILMENT, NLI, SCORES, A, B

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("ALBERT_DATA_DIR", ROOT / "../shared/data")) / "glue"

LABELS = {"sts-b": SCORES, "mnli": NLI, "qnli": ENTAILMENT, "rte": ENTAILMENT}
ALL_SPLITS = [(task.name, split.name) for task in GLUE_TASKS for split in task.splits]


@pytest.mark.parametrize(("name", "split_name"), ALL_SPLITS)
def test_texts_labels_and_ids_are_read_from_each_format(name, split_name, glue_dir):
    task = find_glue_task(name)
    (split,) = (split for split in task.splits if split.name == split_name)
    examples = read_split(task, split, str(glue_dir))
    assert [e.text for e in examples] == A
    assert [e.text_pair for e in examples] == ([None] * 3 if name in ("cola", "sst-2") else B)
    unlabelled = split_name.startswith("test")
    expected = [None] * 3 if unlabelled else LABELS.get(name, BINARY)
    assert [e.label for e in examples] == expected
    assert [e.id for e in examples] == ["0", "1", "2"]
    first = 1 if name == "cola" and not unlabelled else 2
    assert examples[2].where == f"{glue_dir / split.file}:{first + 2}"


def test_tasks_are_found_by_name_in_any_case():
    assert find_glue_task("SST-2").title == "SST-2"
    assert [task.name for task in GLUE_TASKS] == (
        ["cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]
    )
    with pytest.raises(AlbertError, match="no GLUE task 'snli'; the tasks are cola, sst-2"):
        find_glue_task("snli")


def test_tasks_are_found_by_their_folders(glue_dir, tmp_path):
    assert len(find_tasks(str(glue_dir))) == 10
    (tmp_path / "some/RTE").mkdir(parents=True)
    assert [task.name for task in find_tasks(str(tmp_path / "some"))] == ["rte"]
    with pytest.raises(AlbertError, match="holds no GLUE task"):
        find_tasks(str(tmp_path / "some/RTE"))


def test_malformed_rows_of_qqp_are_skipped_and_counted(glue_dir, capsys):
    path = glue_dir / "QQP/train.tsv"
    lines = path.read_text("utf-8").splitlines()
    lines[2:3] = ["91\t1\t2\tIt's", "late\tno\t0"]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    task = find_glue_task("qqp")
    examples = read_split(task, task.splits[0], str(glue_dir))
    assert [e.label for e in examples] == ["1", "1"]
    said = f"QQP train: 2 rows with a wrong number of fields were skipped, the first at {path}:3."
    assert said in capsys.readouterr().out


def test_a_malformed_row_of_a_test_set_is_an_error_because_every_row_needs_an_answer(glue_dir):
    path = glue_dir / "QQP/test.tsv"
    path.write_text("id\tquestion1\tquestion2\n0\tWhy?\n", "utf-8")
    task = find_glue_task("qqp")
    with pytest.raises(AlbertError, match=r"test\.tsv:2: 2 fields, but the table has 3"):
        read_split(task, task.parts("test")[0], str(glue_dir))


_QNLI, _STS = "index\tquestion\tsentence\tlabel\n", "index\tsentence1\tsentence2\tscore\n"
BAD = {
    "no header": ("rte", "0\tA\tB\tentailment\n", "has no column 'sentence1'; it has 0, A, B, ent"),
    "other task": ("mrpc", "sentence\tlabel\nA\t1\n", "has no column '#1 String'; it has sent"),
    "empty": ("rte", "", "holds no examples"),
    "only a header": ("sst-2", "sentence\tlabel\n", "holds no examples"),
    "short row": ("sst-2", "sentence\tlabel\nA\t1\nB\n", ":3: 1 fields, but the table has 2"),
    "long row": ("cola", "a\t1\t\tA\tB\n", ":1: 5 fields, but the table has 4"),
    "unknown label": ("cola", "a\t1\t\tA\na\t2\t\tB\n", ":2: CoLA has no label '2'; it has 0, 1"),
    "no gold label": ("qnli", f"{_QNLI}0\tA\tB\t-\n", ":2: QNLI has no label '-'"),
    "text as score": (
        "sts-b",
        f"{_STS}0\tA\tB\tx\n",
        ":2: the score 'x' is not a number from 0 to 5",
    ),
    "out of range": ("sts-b", f"{_STS}0\tA\tB\t5.1\n", ":2: the score '5.1' is not"),
    "not a number": ("sts-b", f"{_STS}0\tA\tB\tnan\n", ":2: the score 'nan' is not"),
    "not UTF-8": ("sst-2", b"sentence\tlabel\n\xff\t1\n", ":2: not UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_in_files_name_the_place(case, tmp_path):
    name, content, message = BAD[case]
    task = find_glue_task(name)
    path = tmp_path / task.splits[0].file
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AlbertError) as error:
        read_split(task, task.splits[0], str(tmp_path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_missing_file_and_missing_folder_are_named(tmp_path):
    task = find_glue_task("rte")
    with pytest.raises(AlbertError, match=r"RTE/train\.tsv does not exist"):
        read_split(task, task.splits[0], str(tmp_path))
    with pytest.raises(AlbertError, match="`data_dir` is needed"):
        read_split(task, task.splits[0], None)


def test_an_unknown_task_is_refused():
    with pytest.raises(AlbertError, match="There is no GLUE task 'snli'"):
        find_glue_task("snli")


real_data = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent (set ALBERT_DATA_DIR)")
REAL_ROWS = {
    "cola": ("CoLA", 8551, 1043),
    "sst-2": ("SST-2", 67349, 872),
    "rte": ("RTE", 2490, 277),
    "wnli": ("WNLI", 635, 71),
    "sts-b": ("STS-B", 5749, 1500),
}


@pytest.mark.realdata
@real_data
@pytest.mark.parametrize("name", REAL_ROWS)
def test_real_files_have_the_published_numbers_of_rows(name):
    task = find_glue_task(name)
    folder, train_rows, dev_rows = REAL_ROWS[name]
    read = {split.name: read_split(task, split, str(DATA)) for split in task.splits}
    assert task.splits[0].file == f"{folder}/train.tsv"
    assert [len(read[n]) for n in ("train", "dev")] == [train_rows, dev_rows]
    assert len(read["test"]) == task.parts("test")[0].rows
    labels = [example.label for example in read["train"]]
    if task.labels:
        assert task.majority == max(task.labels, key=labels.count)
    else:
        mean = np.mean([float(label) for label in labels])
        assert mean == pytest.approx(float(task.majority), abs=5e-4)


@pytest.mark.realdata
@real_data
def test_rows_of_real_data_with_unbalanced_quotes_are_not_joined():
    task = find_glue_task("rte")
    examples = read_split(task, task.splits[0], str(DATA))
    assert any(e.text.count('"') % 2 for e in examples)
    assert [int(e.where.rpartition(":")[2]) for e in examples] == list(range(2, 2492))

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import label_text
from albert_tf.tasks.glue.run import find_tasks, read_examples, read_split
from albert_tf.tasks.glue.tasks import GLUE_TASKS, TASKS
from tests.tasks.glue.conftest import BINARY, ENTAILMENT, NLI, SCORES, A, B

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("ALBERT_DATA_DIR", ROOT / "../shared/data")) / "glue"

LABELS = {"sts-b": SCORES, "mnli": NLI, "qnli": ENTAILMENT, "rte": ENTAILMENT}
ALL_SPLITS = [(task.name, name) for task in GLUE_TASKS for name in task.splits]


@pytest.mark.parametrize(("name", "split_name"), ALL_SPLITS)
def test_texts_labels_and_ids_are_read_from_each_format(name, split_name, glue_dir):
    split = TASKS[name].splits[split_name]
    examples = read_split(split, str(glue_dir))
    assert [e.text for e in examples] == A
    assert [e.text_pair for e in examples] == ([None] * 3 if name in ("cola", "sst-2") else B)
    expected = [None] * 3 if split.rows else LABELS.get(name, BINARY)
    assert [None if e.label is None else label_text(e.label) for e in examples] == expected
    assert [e.id for e in examples] == (["0", "1", "2"] if split.rows else [None] * 3)
    first = 1 if name == "cola" and not split.rows else 2
    assert examples[2].where == f"{glue_dir / split.file}:{first + 2}"


def test_the_diagnostic_set_is_predicted_with_mnli_if_it_is_there(glue_dir, capsys):
    assert list(read_examples(TASKS["mnli"], ["predict"], str(glue_dir)).predict) == (
        ["MNLI-m", "MNLI-mm", "AX"]
    )
    (glue_dir / "diagnostic/diagnostic.tsv").unlink()
    assert list(read_examples(TASKS["mnli"], ["predict"], str(glue_dir)).predict) == (
        ["MNLI-m", "MNLI-mm"]
    )
    assert "AX is not predicted, as there is no" in capsys.readouterr().out


def test_tasks_are_found_by_their_folders(glue_dir, tmp_path):
    assert len(find_tasks(str(glue_dir))) == 9
    (tmp_path / "some/RTE").mkdir(parents=True)
    assert [task.name for task in find_tasks(str(tmp_path / "some"))] == ["rte"]
    with pytest.raises(AlbertError, match="holds no GLUE task"):
        find_tasks(str(tmp_path / "some/RTE"))


def test_malformed_rows_of_qqp_are_skipped_and_counted(glue_dir, capsys):
    path = glue_dir / "QQP/train.tsv"
    lines = path.read_text("utf-8").splitlines()
    lines[2:3] = ["91\t1\t2\tIt's", "late\tno\t0"]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    examples = read_split(TASKS["qqp"].splits["train"], str(glue_dir))
    assert [e.label for e in examples] == [1, 1]
    said = (
        f"{path}:3: 2 rows with a wrong number of fields, of which this is the first, were skipped"
    )
    assert said in capsys.readouterr().out


def test_a_malformed_row_of_a_test_set_is_an_error_because_every_row_needs_an_answer(glue_dir):
    path = glue_dir / "QQP/test.tsv"
    path.write_text("id\tquestion1\tquestion2\n0\tWhy?\n", "utf-8")
    with pytest.raises(AlbertError, match=r"test\.tsv:2: 2 fields, but the table has 3"):
        read_split(TASKS["qqp"].splits["QQP"], str(glue_dir))


BAD = {
    "no header": (
        "rte",
        2 * "0\tA\tB\tentailment\n",
        "no column 'sentence1'; there are 0, A, B, ent",
    ),
    "long row": ("cola", "a\t1\t\tA\tB\n", ":1: 5 fields, but the table has 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_in_files_name_the_place(case, tmp_path):
    name, content, message = BAD[case]
    split = TASKS[name].splits["train"]
    path = tmp_path / split.file
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(AlbertError) as error:
        read_split(split, str(tmp_path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


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
    folder, train_rows, dev_rows = REAL_ROWS[name]
    splits = TASKS[name].splits
    read = {name: read_split(split, str(DATA)) for name, split in splits.items()}
    assert splits["train"].file == f"{folder}/train.tsv"
    assert [len(read[n]) for n in ("train", "dev")] == [train_rows, dev_rows]
    assert len(read[folder]) == splits[folder].rows

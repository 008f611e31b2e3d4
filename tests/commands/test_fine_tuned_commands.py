# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`albert classify`, `answer` and `choose` with a model print what the Python API returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from albert_tf.tasks.classification.classifier import TextClassifier, TextRegressor
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.multiple_choice.chooser import MultipleChoice
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.tables import TextColumns
from albert_tf.tasks.tagging.data import TaggingSpec
from albert_tf.tasks.tagging.tagger import TextTagger
from albert_tf.tasks.tagging.task import TaggingTask
from tests.support.weights import GOLDEN

TEXTS = ["w1 w2 w3", "w4", "w5 w6", "w7 w8 w9"]


@pytest.fixture
def classifier(fine_tuned):
    """Writes a classification model, as `classifier(labels, second column)`."""

    def write(labels, pair=None):
        spec = ClassificationSpec(labels, 12, columns=TextColumns("a", pair, "label"))
        return fine_tuned(TextClassificationTask, spec)

    return write


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("labels", [("no", "perhaps"), (9, 1000000), None])
def test_texts_are_classified(labels, albert, classifier):
    folder = classifier(labels) if labels else str(GOLDEN / "hf_heads/classification")
    expected = TextClassifier.load(folder).predict(TEXTS)
    width = max(len(str(row.label)) for row in expected)
    lines = albert("classify", folder, *TEXTS).ok().stdout.splitlines()
    for line, row, text in zip(lines, expected, TEXTS):
        assert line == f"{row.probability:6.1%}  {row.label!s:{width}}  {text}"
    printed = json_lines(albert("classify", folder, *TEXTS, "--json").ok().stdout)
    assert printed == [{"text": text, **row._asdict()} for text, row in zip(TEXTS, expected)]


def test_several_labels_of_a_text_are_found(albert, fine_tuned):
    spec = ClassificationSpec(("no", "yes"), 12, multi_label=True, columns=TextColumns("a"))
    folder, numbers = fine_tuned(TextClassificationTask, spec), set()
    for threshold in (0.0, 0.99):
        kept = {"thresholds": {"no": threshold, "yes": 0.6}, "checkpoint": None}
        Path(folder, "thresholds.json").write_text(json.dumps(kept))
        expected = TextClassifier.load(folder).predict(TEXTS)
        numbers |= {*map(len, expected)}
        lines = albert("classify", folder, *TEXTS).ok().stdout.splitlines()
        for line, found, text in zip(lines, expected, TEXTS):
            labels = ", ".join(f"{x.label} {x.probability:.1%}" for x in found) or "none"
            assert (line.startswith(labels), line.endswith(f"  {text}")) == (True, True)
    assert numbers == {0, 1, 2}
    printed = json_lines(albert("classify", folder, *TEXTS, "--json").ok().stdout)
    assert [x["labels"] for x in printed] == [[x._asdict() for x in found] for found in expected]


def test_numbers_are_predicted(albert, classifier):
    folder = classifier(())
    expected = TextRegressor.load(folder).predict(TEXTS)
    lines = albert("classify", folder, *TEXTS).ok().stdout.splitlines()
    assert lines == [f"{value:8.3f}  {text}" for value, text in zip(expected, TEXTS)]
    printed = json_lines(albert("classify", folder, *TEXTS, "--json").ok().stdout)
    assert [row["value"] for row in printed] == pytest.approx(expected.tolist(), rel=1e-6)


def test_pairs_are_two_arguments_or_a_line(albert, classifier):
    folder = classifier(("no", "yes"), "b")
    (first, second) = TextClassifier.load(folder).predict(TEXTS[::2], TEXTS[1::2])
    done = albert("classify", folder, *TEXTS, "--json").ok()
    assert json_lines(done.stdout) == [
        {"text": TEXTS[0], "second_text": TEXTS[1], **first._asdict()},
        {"text": TEXTS[2], "second_text": TEXTS[3], **second._asdict()},
    ]
    lines = f"{TEXTS[0]}\t{TEXTS[1]}\n{TEXTS[2]}\t{TEXTS[3]}\n"
    assert albert("classify", folder, "--json", stdin=lines.encode()) == done
    odd = albert("classify", folder, "w1")
    assert odd.stderr.startswith("error: The model takes pairs of texts; give an even number")
    single = albert("classify", folder, stdin=b"w1\tw2\nw3")
    assert "line 2, 'w3', is not two texts with a tab between them." in single.stderr
    assert odd.returncode == single.returncode == 1


@pytest.mark.parametrize("pair", [None, "b"])
def test_a_table_is_read_with_the_columns_of_the_model(pair, albert, classifier, tmp_path):
    folder, path = classifier(("no", "yes"), pair), tmp_path / "new.csv"
    path.write_text('b,label,a\nw1,x,"w2\nw3"\nw4,,\n')
    expected = TextClassifier.load(folder).predict(["w2\nw3", ""], ["w1", "w4"] if pair else None)
    done = albert("classify", folder, f"--input_file={path}", "--json").ok()
    seconds = ({"second_text": text} if pair else {} for text in ("w1", "w4"))
    assert json_lines(done.stdout) == [
        {"text": text, **second, **found._asdict()}
        for text, second, found in zip(["w2\nw3", ""], seconds, expected)
    ]
    path.write_text("w1\nw2\n")
    done = albert("classify", folder, f"--input_file={path}")
    assert done.stderr == f"error: {path}:2: there is no column 'a'; there are w1.\n"


def test_questions_are_answered(albert, fine_tuned, tmp_path):
    folder = fine_tuned(SquadTask, SquadSpec("2.0", max_seq_length=32, max_query_length=8))
    context = "w3 w4 w5\nw6 w7 w8"
    expected = QuestionAnswerer.load(folder).answer("w1 w2", context)
    done = albert("answer", folder, "w1 w2", context).ok()
    assert done.stdout == expected.summary() + "\n"
    assert f"(probability {expected.probability:.3f}, characters " in done.stdout
    done = albert("answer", folder, "w1 w2", "--json", stdin=context.encode()).ok()
    assert json.loads(done.stdout) == expected._asdict()
    (tmp_path / "rows.csv").write_text("id,question,context\na,w1 w2,w3 w4\nb,w1,\n")
    found = QuestionAnswerer.load(folder).answer(["w1 w2", "w1"], ["w3 w4", ""])
    assert found[0].text and not found[1].text
    given = "answer", folder, f"--input_file={tmp_path / 'rows.csv'}"
    summaries = [answer.summary() for answer in found]
    assert albert(*given).ok().stdout == "w1 w2\n{}\nw1\n{}\n".format(*summaries)
    first, second = json_lines(albert(*given, "--json").ok().stdout)
    assert first == {"id": "a", "question": "w1 w2", **found[0]._asdict()}
    assert second["id"] == "b"


def test_an_option_is_chosen(albert, fine_tuned, tmp_path):
    folder = fine_tuned(MultipleChoiceTask, MultipleChoiceSpec(16, 6))
    expected = MultipleChoice.load(folder).choose(TEXTS, "w9 _", "w10 w11")
    given = ["choose", folder, *TEXTS, "--question=w9 _", "--context=w10 w11"]
    lines = albert(*given).ok().stdout.splitlines()
    assert lines[0] == f"{max(expected.probabilities):6.1%}  {expected.option}"
    assert sorted(line.split(maxsplit=1)[1] for line in lines) == sorted(TEXTS)
    printed = json.loads(albert(*given, "--json").ok().stdout)
    assert printed == {**expected._asdict(), "probabilities": list(expected.probabilities)}
    rows = [{"question": "w9 _", "context": "w10 w11", "options": x} for x in (TEXTS, TEXTS[::-1])]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = "choose", folder, f"--input_file={tmp_path / 'rows.jsonl'}"
    line = f"{max(expected.probabilities):6.1%}  {expected.option}\n"
    assert albert(*given).ok().stdout == line * 2
    printed = json_lines(albert(*given, "--json").ok().stdout)
    assert [(row["id"], row["index"]) for row in printed] == [
        ("0", expected.index), ("1", len(TEXTS) - 1 - expected.index)
    ]  # fmt: skip
    done = albert("choose", folder, "w1")
    assert (done.returncode, done.stderr) == (
        1,
        "error: choose row 0: there must be 2 to 26 options, not 1.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["answer", "absent", "x", "y"], "absent does not exist; give the"),
        (["answer", "absent"], "QUESTION or --input_file is missing; see --help."),
        (["answer", "absent", "x", "y", "z"], "unexpected argument 'z'; see --help."),
        (["choose", "absent"], "Give either OPTION… or --input_file with questions; see"),
    ],
)
def test_wrong_arguments_end_with_one_line(arguments, message, albert):
    done = albert(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: {message}")


def test_entities_are_printed_of_texts_and_of_words(albert, fine_tuned, tmp_path):
    folder = fine_tuned(TaggingTask, TaggingSpec(("B-X", "I-X", "O"), 8))
    expected = TextTagger.load(folder).predict(TEXTS)
    lines = albert("tag", folder, *TEXTS).ok().stdout.splitlines()
    found = [entity for result in expected for entity in result.entities]
    assert [line.split()[:3] for line in lines] == [
        [f"{x.score:.1%}", "X", f"{x.start}-{x.end}"] for x in found
    ]
    rows = [{"tokens": text.split()} for text in TEXTS]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    printed = json_lines(
        albert("tag", folder, f"--input_file={tmp_path}/rows.jsonl", "--json").ok().stdout
    )
    assert [row["text"] for row in printed] == TEXTS
    for row, result in zip(printed, expected):
        assert row["entities"] == [pytest.approx(entity._asdict()) for entity in result.entities]

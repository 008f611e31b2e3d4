# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Three rows of every GLUE file, in GLUE's formats; the sentences were written for these tests."""

import pytest

_SENTENCES = ["sentence1", "sentence2"]
_PARSES = ["p1_parse", "p2_parse", "p1_tree", "p2_tree"]
_NLI = ["index", "promptID", "pairID", "genre", *_PARSES, *_SENTENCES]
_STS = ["index", "genre", "filename", "year", "old_index", "source1", "source2", *_SENTENCES]
_MRPC = ["#1 ID", "#2 ID", "#1 String", "#2 String"]

A = ['Two "dogs run.', "It's  late 今", "Rain fell"]
B = ["Dogs move.", 'She said "no', "The day was dry, é"]
BINARY = ["1", "0", "1"]
ENTAILMENT = ["entailment", "not_entailment", "entailment"]
NLI = ["neutral", "contradiction", "entailment"]
SCORES = ["5.000", "0", "2.25"]


def _nli(labels, annotators=0):
    header = [*_NLI, *[f"label{i + 1}" for i in range(annotators)]] + ["gold_label"] * bool(labels)
    rows = [
        [i, i + 7, f"{i}n", "fiction", "( x )", "( y )", "(X)", "(Y)", A[i], B[i]]
        + [NLI[i]] * (annotators + bool(labels))
        for i in range(3)
    ]
    return [header, *rows]


def _pairs(names, labels):
    header = ["index", *names] + ["label"] * bool(labels)
    return [header, *([i, A[i], B[i], *labels[i : i + 1]] for i in range(3))]


def _sts(labels):
    header = _STS + ["score"] * bool(labels)
    rows = [[i, "news", "MSR", "2012", "0001", "none", "none", A[i], B[i]] for i in range(3)]
    return [header, *(row + labels[i : i + 1] for i, row in enumerate(rows))]


def _layouts():
    """File -> its rows; the layouts of google-research/albert classifier_utils."""
    layouts = {
        "CoLA/train.tsv": [["gj04", BINARY[i], "*", A[i]] for i in range(3)],
        "CoLA/test.tsv": [["index", "sentence"], *([i, A[i]] for i in range(3))],
        "SST-2/train.tsv": [["sentence", "label"], *([A[i], BINARY[i]] for i in range(3))],
        "SST-2/test.tsv": [["index", "sentence"], *([i, A[i]] for i in range(3))],
        "MRPC/train.tsv": [
            ["\ufeffQuality", *_MRPC],
            *([BINARY[i], 70 + i, 80 + i, A[i], B[i]] for i in range(3)),
        ],
        "MRPC/test.tsv": [["index", *_MRPC], *([i, 70 + i, 80 + i, A[i], B[i]] for i in range(3))],
        "STS-B/train.tsv": _sts(SCORES),
        "STS-B/test.tsv": _sts([]),
        "QQP/train.tsv": [
            ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
            *([90 + i, 1, 2, A[i], B[i], BINARY[i]] for i in range(3)),
        ],
        "QQP/test.tsv": [["id", "question1", "question2"], *([i, A[i], B[i]] for i in range(3))],
        "MNLI/train.tsv": _nli(NLI, annotators=1),
        "MNLI/dev_matched.tsv": _nli(NLI, annotators=5),
        "MNLI/dev_mismatched.tsv": _nli(NLI, annotators=5),
        "MNLI/test_matched.tsv": _nli([]),
        "MNLI/test_mismatched.tsv": _nli([]),
        "diagnostic/diagnostic.tsv": _pairs(_SENTENCES, []),
    }
    for task, names, labels in (
        ("QNLI", ["question", "sentence"], ENTAILMENT),
        ("RTE", _SENTENCES, ENTAILMENT),
        ("WNLI", _SENTENCES, BINARY),
    ):
        layouts[f"{task}/train.tsv"] = _pairs(names, labels)
        layouts[f"{task}/test.tsv"] = _pairs(names, [])
    for file in list(layouts):
        if file.endswith("/train.tsv") and not file.startswith("MNLI"):
            layouts[file.replace("train", "dev")] = layouts[file]
    return layouts


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def glue_dir(tmp_path):
    """A folder with all files of all tasks."""
    for file, rows in _layouts().items():
        write_rows(tmp_path / "glue" / file, rows)
    return tmp_path / "glue"

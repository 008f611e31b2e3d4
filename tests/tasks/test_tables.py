# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import gzip
import importlib
import json
import sys
import types

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined
from albert_tf.io.text_tables import data_rows, read_rows
from albert_tf.tasks.tables import TextColumns, read_texts
from tests.io.test_text_tables import ROWS, HubDataset

ALL = TextColumns(text="first", text_pair="second", label="label", id="key")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def fields(examples):
    return [(e.id, e.text, e.text_pair, e.label) for e in examples]


def test_columns_are_read_by_name_in_any_order(tmp_path):
    path = write(tmp_path / "a.tsv", "label\tsecond\tkey\tfirst\nyes\tB b\t7\tA a\nno\tD\t8\tC\n")
    examples = read_texts(path, ALL)
    assert fields(examples) == [("7", "A a", "B b", "yes"), ("8", "C", "D", "no")]
    assert [e.where for e in examples] == [f"{path}:2", f"{path}:3"]


def test_tsv_keeps_quotes_and_skips_blank_lines(tmp_path):
    path = write(tmp_path / "a.tsv", '\r\ntext\tlabel\r\n"Stop, he said\tx\r\n\r\nit""s\ty\r\n')
    examples = read_texts(path, TextColumns("text", label="label"))
    assert [(e.text, e.label) for e in examples] == [('"Stop, he said', "x"), ('it""s', "y")]
    assert examples[1].where == f"{path}:5"


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz"])
def test_blank_lines_of_a_table_of_one_column_are_blank_texts(name, tmp_path):
    path = tmp_path / name
    with (gzip.open if name.endswith("gz") else open)(path, "wt") as f:
        f.write("\ntext\nA\n\n \nB\n")
    examples = read_texts(str(path), TextColumns("text"))
    assert [e.text for e in examples] == ["A", "", " ", "B"]


def test_csv_fields_may_be_quoted_span_lines_and_be_long(tmp_path):
    long = "word " * 50_000
    text = f'text,label\n"one, ""two""\nthree",x\n\n  \n{long}x, y \n'
    examples = read_texts(write(tmp_path / "a.csv", text), TextColumns("text", label="label"))
    assert fields(examples) == [
        (None, 'one, "two"\nthree', None, "x"),
        (None, f"{long}x", None, "y"),
    ]
    assert examples[1].where == f"{tmp_path}/a.csv:6"


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_labels_of_tables_without_types_are_numbers_if_they_are_written_so(name, tmp_path):
    labels = ["1", "01", "1.1", "1.10", "-3", "1e5", "nan", "x", " 12 "]
    lines = [("\t" if name == "a.tsv" else ",").join(["A", label]) for label in ["label", *labels]]
    path = write(tmp_path / name, "\n".join(lines).replace("A", "text", 1))
    found = [e.label for e in read_texts(path, TextColumns("text", label="label"))]
    assert found == [1, "01", 1.1, "1.10", -3, "1e5", "nan", "x", 12]


def test_json_values_may_be_numbers_and_booleans(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as f:
        f.write('{"text": "é 1", "label": 2.5, "n": 12}\n\n{"n": "x", "label": true, "text": ""}\n')
        f.write('{"text": "2", "label": NaN, "n": 1}\n{"text": "3", "label": "1", "n": 2}\n')
    examples = read_texts(str(path), TextColumns("text", label="label", id="n"))
    assert fields(examples)[:2] == [("12", "é 1", None, 2.5), ("x", "", None, True)]
    assert [e.label for e in examples[2:]] == [None, "1"]
    (tmp_path / "b.jsonl").write_text('{"label": ["x", NaN]}\n')
    assert [row for _, row in read_rows(str(tmp_path / "b.jsonl"))] == [{"label": ["x", None]}]


BAD = {
    "a.tsv": [
        ("", "holds no examples"),
        ("body\tlabel\nA\tB\n", ":2: there is no column 'text'; there are body, label."),
        ("text\ttext\nA\tB\n", ":1: a column appears more than once among text, text."),
        ("text\tlabel\nA\tB\nC\n", ":3: 1 fields, but the table has 2 columns"),
    ],
    "a.csv": [
        ('text\n"open', ":2: not CSV: unexpected end of data"),
        ('text\n"a"b\n', ":2: not CSV"),
    ],
    "a.jsonl": [
        ('{"text": "A"}\n{"text": \n', ":2: the line is not JSON"),
        ('{"text": "A"}\n["A"]\n', ":2: a JSON object was expected"),
        ('{"text": NaN}\n', ":1: 'text' must be a string or a number, not None"),
        ('{"text": -Infinity}\n', ":1: 'text' must be a string or a number, not -inf"),
    ],
    "a.json": [("{}", " must hold a list of JSON objects."), ("[3]", " row 0 must be a dict")],
    "a.doc": [("", "its name should end in .tsv, .csv, .jsonl, .json, .parquet or .xlsx.")],
}


@pytest.mark.parametrize(
    ("name", "content", "message"), [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_a_bad_table_is_refused_in_a_sentence_with_the_place(name, content, message, tmp_path):
    path = write(tmp_path / name, content)
    with pytest.raises(AlbertError) as error:
        read_texts(path, TextColumns("text"))
    assert str(error.value).startswith(path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "text\tkey\nA\t7\nB\t8\nC\t7\n"),
        (
            "a.jsonl",
            '{"text": "A", "key": 7}\n\n{"text": "B", "key": 8}\n{"text": "C", "key": "7"}\n',
        ),
    ],
)
def test_a_repeated_id_is_refused_with_both_places(name, content, tmp_path):
    path = write(tmp_path / name, content)
    with pytest.raises(AlbertError, match=rf"{name}:4: the id '7' .*{name}:(1|2) already"):
        read_texts(path, TextColumns("text", id="key"))
    assert len(read_texts(path, TextColumns("text"))) == 3


@pytest.mark.parametrize("column", ["label", "key"])
def test_labels_and_ids_with_half_a_surrogate_pair_are_refused_and_texts_are_not(column, tmp_path):
    row = {"first": "A \ud800", "second": "B", "label": "yes", "key": "1"}
    read_texts([row], ALL, "train")
    row[column] = "x\udfff"
    path = write(tmp_path / "a.jsonl", json.dumps(row))
    for data, place in ([row], "train row 0"), (path, f"{path}:1"):
        with pytest.raises(AlbertError) as error:
            read_texts(data, ALL, "train")
        assert str(error.value).startswith(f"{place}: '{column}' is 'x\\udfff', with half of a")


def test_a_number_that_python_does_not_write_is_refused():
    with pytest.raises(AlbertError, match=r"^train row 0: the number in 'text' is too long"):
        read_texts([{"text": 10**5000}], TextColumns("text"), "train")


def test_tables_of_arrow_and_parquet_files_are_read(tmp_path):
    parquet = importlib.import_module("pyarrow.parquet")
    table = importlib.import_module("pyarrow").Table.from_pylist(ROWS)
    assert [row for _, row in data_rows(table, "train")] == ROWS
    repeated = table.rename_columns(["text", "text"])
    parquet.write_table(repeated, again := str(tmp_path / "again.parquet"))
    for rows in (data_rows(repeated, "train"), read_rows(again)):
        with pytest.raises(AlbertError, match="a column appears more than once among text, text"):
            next(rows)
    parquet.write_table(table, path := str(tmp_path / "a.parquet"))
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    for file in (path, str(tmp_path / "a.json")):
        examples = read_texts(file, TextColumns("text", label="label"))
        assert [(e.text, e.label) for e in examples] == [("a b", 1), ("c", 0)]
        assert examples[1].where == f"{file} row 1"
    (tmp_path / "b.parquet").write_text("text\nA\n")
    with pytest.raises(AlbertError, match=r"b\.parquet cannot be read: "):
        next(read_rows(str(tmp_path / "b.parquet")))


def test_the_first_sheet_of_an_excel_file_is_read(tmp_path, monkeypatch):
    book, path = importlib.import_module("openpyxl").Workbook(), str(tmp_path / "a.xlsx")
    for row in (["text", None, "label"], ["a b", "x", 1], [None] * 3, ["c", None, 0]):
        book.active.append(row)
    book.create_sheet().append(["another"])
    book.save(path)
    assert [row for _, row in read_rows(path)] == ROWS
    book.active["B1"] = "label"
    book.save(path)
    with pytest.raises(
        AlbertError, match=r"a\.xlsx: a column appears more than once among text, l"
    ):
        next(read_rows(path))
    book.active.delete_cols(2, 2)
    book.active.cell(9, 1).value = " "
    book.active.cell(9, 1).value = None
    book.save(path)
    assert [row["text"] for _, row in read_rows(path)] == ["a b", "", "c"]
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(AlbertError, match=r"a\.xlsx needs the package openpyxl: pip install"):
        read_texts(path, TextColumns("text"))


@pytest.mark.parametrize(
    ("text", "warns"), [('"He said ""no"""', True), ('"Whole"', False), ('"Stop", he said', False)]
)
def test_quotes_of_csv_in_a_tsv_file_are_kept_with_a_warning(text, warns, tmp_path, capsys):
    path = write(tmp_path / "a.tsv", f"text\n{text}\nPlain.\n")
    assert read_texts(path, TextColumns("text"))[0].text == text
    assert ("save the table as .csv" in capsys.readouterr().err) == warns


@pytest.mark.parametrize("names", [("a", "a"), ("a", None, "a"), ("a", "b", "b")])
def test_the_texts_and_the_label_are_different_columns(names):
    with pytest.raises(
        AlbertError, match=f"are in the columns {joined(filter(None, names))}; name"
    ):
        TextColumns(*names)


def test_the_names_of_class_labels_replace_their_numbers():
    label = types.SimpleNamespace(names=["no", "yes"], int2str=None)
    data, columns = HubDataset(label), TextColumns("text", label="label")
    data.rows = [*ROWS, {"text": "d", "label": -1}]
    assert [example.label for example in read_texts(data, columns)] == ["yes", "no", None]

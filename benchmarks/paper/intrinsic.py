# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Intrinsic evaluation: masked LM, SOP and NSP accuracy on SQuAD's and RACE's development text.

Source: paper, section 4.2.1: "we create a development set based on the development sets from SQuAD
and RACE using the same procedure as in Sec. 4.1".
"""

from __future__ import annotations

import hashlib
import json
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from albert_tf.cli.path_flags import define_path, define_paths
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.text_files import atomic_text_writer
from albert_tf.training.specs import PRECISIONS
from benchmarks.paper import named_paths

FLAGS = flags.FLAGS
RESULT_FILE = "intrinsic.json"
OBJECTIVES = ("sop", "nsp")
_TEXT_FILE, _CORPUS_FILE = "text.txt", "corpus.json"
#: Documents given to the sentence splitter at once.
_SPLIT_AT_ONCE = 64


def define_flags() -> None:
    """Flags of `intrinsic`."""
    named_paths.define_checkpoints_flag(required=False)
    define_path(
        "vocab_file", None, "SentencePiece model, WordPiece vocabulary or tokenizer.json for "
        "checkpoints that have none beside them; without --checkpoints its records are just built, "
        "for --intrinsic of the tables."
    )  # fmt: skip
    define_paths(
        "squad_files", None, "SQuAD's development sets: a comma list of files and globs of either "
        "version. A paragraph that occurs in several of them is taken once.",
        required=True
    )  # fmt: skip
    define_path("race_dir", None, "Folder of RACE, with dev in it.", required=True)
    define_path(
        "output_dir", None, f"Folder for {RESULT_FILE}, and for the text and the records, which "
        "are made once and used again.", required=True
    )  # fmt: skip
    flags.DEFINE_integer("max_seq_length", 512, "Length of the records; the paper's is 512.", 8)
    flags.DEFINE_integer("eval_batch_size", 32, "Examples of an evaluation batch.", 1)
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "As in run_pretraining.py.")


def development_documents(squad_files: Sequence[str], race_dir: str) -> dict[str, list[list[str]]]:
    """The paragraphs of each article of the development sets, no text twice.

    Returns:
      Documents by "squad" and "race".

    Raises:
      AlbertError: a file is missing or malformed.
    """
    from albert_tf.tasks.multiple_choice.data import read_race
    from albert_tf.tasks.squad.data import read_contexts

    titles: dict[str, list[str]] = {}
    for path in squad_files:
        for title, contexts in read_contexts(path).items():
            titles.setdefault(title, []).extend(contexts)
    articles = [[example.context] for example in read_race(race_dir, "dev")]
    seen: set[str] = set()
    return {
        "squad": _without_repetitions(titles.values(), seen),
        "race": _without_repetitions(articles, seen),
    }


def _without_repetitions(texts: Iterable[Sequence[str]], seen: set[str]) -> list[list[str]]:
    """The paragraphs of each text, without parts of texts that were seen before."""
    documents = []
    for parts in texts:
        document = []
        for part in parts:
            lines = [" ".join(line.split()) for line in part.splitlines()]
            whole = " ".join(filter(None, lines))
            if whole not in seen:
                seen.add(whole)
                document += filter(None, lines)
        documents.append(document)
    return [document for document in documents if document]


def write_text(documents: Mapping[str, Sequence[Sequence[str]]], folder: str) -> dict[str, Any]:
    """Writes documents as sentences, one per line, a blank line after each document.

    Args:
      documents: paragraphs of each document, by origin.
      folder: gets text.txt and corpus.json; if they are of the same documents, they stay.

    Returns:
      What corpus.json holds: numbers of documents by origin, of sentences, and a checksum.

    Raises:
      AlbertError: the folder holds the text of other documents.
    """
    import tensorflow as tf

    from data_prep.sentence_splitter import SentenceSplitter

    digest = hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()
    path = os.path.join(folder, _CORPUS_FILE)
    if tf.io.gfile.exists(path):
        corpus = files.read_object(path)
        if corpus.get("sha256") != digest:
            raise AlbertError(
                f"{folder} holds the text of other development sets; choose another folder."
            )
        return corpus
    splitter, sentences = SentenceSplitter(), 0
    together = [document for group in documents.values() for document in group]
    with atomic_text_writer(os.path.join(folder, _TEXT_FILE)) as write:
        for start in range(0, len(together), _SPLIT_AT_ONCE):
            group = together[start : start + _SPLIT_AT_ONCE]
            split = iter(
                splitter.split([paragraph for document in group for paragraph in document])
            )
            for document in group:
                lines = [line for _ in document for line in next(split)]
                write("".join(f"{line}\n" for line in lines) + "\n")
                sentences += len(lines)
    corpus = {
        "documents": {origin: len(group) for origin, group in documents.items()},
        "sentences": sentences,
        "sha256": digest,
    }
    files.write_json(path, corpus)
    return corpus


def build_records(folder: str, tokenizer: Any, max_seq_length: int) -> str:
    """Builds the records of text.txt for a tokenizer, unless they are there.

    Args:
      folder: see `write_text`.
      tokenizer: of the models to evaluate.
      max_seq_length: of the records.

    Returns:
      The folder that holds the folders of both objectives' records, sop and nsp.
    """
    from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
    from data_prep.pretraining_options import PretrainingOptions

    spec = json.dumps(tokenizer.spec.to_dict(), sort_keys=True)
    name = f"records_{max_seq_length}_{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
    records = os.path.join(folder, name)
    source = TokenizerSource(tokenizer.save(records))
    for objective in OBJECTIVES:
        options = PretrainingOptions(
            max_seq_length=max_seq_length, dupe_factor=1, sentence_objective=objective
        )
        output = Output(os.path.join(records, objective))
        build_pretraining_data([os.path.join(folder, _TEXT_FILE)], source, output, options)
    return records


def evaluate(
    path: str, records: str, *, batch_size: int = 32, precision: str = "float32"
) -> dict[str, dict[str, float]]:
    """Losses and accuracies of a checkpoint by sentence objective.

    The sentence head is taken as it is, whatever it was trained for: its class 1 is "swapped" of
    SOP, and "from another document" of NSP.

    Args:
      path: see albert_tf.weights.load.open_source; with the pretraining heads.
      records: see `build_records`.
      batch_size: examples at once.
      precision: see RunConfig.

    Returns:
      For each objective `examples`, `masked_lm_loss` and `sentence_loss` (nats),
      `masked_lm_accuracy`, `sentence_accuracy`, and `constant_answer`, what the last would be of
      the more frequent answer alone: NSP has more unrelated pairs than others, as in the release.

    Raises:
      AlbertError: there is no whole pretrained model at `path`, or the records are not for it.
    """
    from albert_tf.tasks.pretraining.data import open_records
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.training.estimator import Estimator
    from albert_tf.training.specs import EvalSpec, RunConfig
    from albert_tf.weights.load import open_source

    config = open_source(path).config()
    if config is None:
        raise AlbertError(f"There is no albert_config.json with {path}; put it there.")
    estimator, results = None, {}
    for objective in OBJECTIVES:
        source = open_records(os.path.join(records, objective), config)
        spec = EvalSpec(
            source.eval_input_fn,
            max_steps=source.num_batches(batch_size),
            name=objective,
        )
        if estimator is None:
            run = RunConfig(output_dir=path, eval_batch_size=batch_size, precision=precision)
            estimator = Estimator(PretrainingTask(config, source), run)
            found = estimator.evaluate(spec, checkpoint=path)
        else:
            found = estimator.evaluate_now(spec)
        ones = source.manifest.statistics["label_1_share"]
        results[objective] = {
            "examples": source.num_examples,
            "constant_answer": max(ones, 1 - ones),
            "masked_lm_loss": found["masked_lm_loss"],
            "masked_lm_accuracy": found["masked_lm_accuracy"],
            "sentence_loss": found["sentence_order_loss"],
            "sentence_accuracy": found["sentence_order_accuracy"],
        }
    return results


def table(models: Sequence[Mapping[str, Any]]) -> str:
    """The accuracies as text of 80 columns."""
    lines = [f"{'model':<44}{'masked LM':>12}{'SOP':>12}{'NSP':>12}"]
    for model in models:
        values = (
            model["sop"]["masked_lm_accuracy"],
            model["sop"]["sentence_accuracy"],
            model["nsp"]["sentence_accuracy"],
        )
        name = textwrap.shorten(model["name"], 43, placeholder="…")
        lines.append(f"{name:<44}" + "".join(f"{value:>12.1%}" for value in values))
    constant = (models[0][objective]["constant_answer"] for objective in OBJECTIVES)
    lines.append(f"{'(the more frequent answer)':<56}" + "".join(f"{c:>12.1%}" for c in constant))
    return "\n".join(lines)


def main() -> None:
    """Runs the command."""
    paths = named_paths.parse(FLAGS.checkpoints)
    squad_files = files.expand_globs(FLAGS.squad_files, "SQuAD file")
    from albert_tf.tokenization.tokenizer import Tokenizer
    from albert_tf.weights.load import open_source

    given = Tokenizer.from_file(FLAGS.vocab_file) if FLAGS.vocab_file else None
    tokenizers = {name: open_source(path).tokenizer() or given for name, path in paths.items()}
    missing = [paths[name] for name, tokenizer in tokenizers.items() if tokenizer is None]
    if missing:
        raise AlbertError(f"There is no tokenizer with {missing[0]}; give --vocab_file.")
    if not (tokenizers or given):
        raise AlbertError("Give --checkpoints, or --vocab_file to build records alone.")
    corpus = write_text(development_documents(squad_files, FLAGS.race_dir), FLAGS.output_dir)
    records = {
        name: build_records(FLAGS.output_dir, tokenizer, FLAGS.max_seq_length)
        for name, tokenizer in (tokenizers or {"": given}).items()
    }
    for folder in dict.fromkeys(records.values()):
        print(f"Records: {folder} ({' and '.join(OBJECTIVES)}).")
    if not paths:
        return
    models = []
    for name, path in paths.items():
        found = evaluate(
            path, records[name], batch_size=FLAGS.eval_batch_size, precision=FLAGS.precision
        )
        models.append({"name": name, **found})
    print(table(models))
    result = {
        "experiment": "intrinsic",
        "source": "Lan et al. (2020), section 4.2.1",
        "corpus": corpus,
        "max_seq_length": FLAGS.max_seq_length,
        "precision": FLAGS.precision,
        "models": models,
    }
    path = os.path.join(FLAGS.output_dir, RESULT_FILE)
    files.write_json(path, result)
    print(f"Written to {path}.")

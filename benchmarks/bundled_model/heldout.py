# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masked LM and sentence order on book chapters that the bundled model was not trained on.

benchmarks/data/books_heldout.txt.gz contains every 40th chapter (95 of 3,838: the 40th, the 80th,
…) of 62 MB of public-domain books. The model was trained on the other chapters of these books and
on newer prose. Of the 11,609 different sentences of eight words or more in the held-out chapters,
six also occur in the other chapters and three in the newer prose. The record builder truncates most
sequences in the middle of a sentence. The row "whole sentences" has records of the sentences that
fit, so neither cuts nor lengths tell their order.
"""

from __future__ import annotations

import os

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.io import files
from albert_tf.io.files import find_only
from albert_tf.pretrained import DEFAULT
from albert_tf.pretrained.locate import locate
from albert_tf.tokenization.tokenizer import SPEC_FILE
from albert_tf.weights.load import open_source
from benchmarks.common import describe_machine, markdown
from demo.stages import Stage, run_stages

FLAGS = flags.FLAGS
TEXT = "benchmarks/data/books_heldout.txt.gz"
RESULTS_FILE = "heldout.json"
RECORDS = {"max_seq_length": 128, "dupe_factor": 1, "random_seed": 12345, "num_workers": 2}
#: How sequences are built, by their name: flags of data_prep/create_pretraining_data.py.
SEQUENCES = {
    "n-grams up to 3": {"ngram": 3},
    "single words": {"ngram": 1},
    "whole sentences": {"ngram": 3, "whole_sentences": True, "short_seq_prob": 0},
}


def define_flags() -> None:
    """Flags of `heldout`."""
    define_path("model", DEFAULT, "What to evaluate: see --init_checkpoint of the runners.")
    define_path(
        "output_dir", None, f"Folder for the records and {RESULTS_FILE}; what is finished there is "
        "reused.", required=True
    )  # fmt: skip


def evaluate(model: str, output_dir: str) -> dict[str, object]:
    """Builds records with the model's vocabulary and evaluates it through run_pretraining.py.

    Args:
      model: see albert_tf.weights.load.open_source.
      output_dir: see the flag.

    Returns:
      What is written to heldout.json: `model`, `commands`, `machine` and, in `metrics`, by a key
      of SEQUENCES, instances and the metrics of albert_tf.tasks.pretraining.task.

    Raises:
      AlbertError: a command failed.
    """
    source = open_source(model)
    tokenizer = source.tokenizer()
    vocabulary = os.path.join(output_dir, f"vocabulary-{tokenizer.spec.sha256[:8]}")
    tokenizer.save(vocabulary)
    # The weights as a file, so that other ones under the same name are evaluated again.
    weights = find_only(locate(model), "*.safetensors")
    inputs = [weights] if weights else [f"{source.location}.index"]
    stages, folders = [], {}
    for what, options in SEQUENCES.items():
        name = what.replace(" ", "-")
        records, folders[what] = (f"{output_dir}/{kind}/{name}" for kind in ("records", "scores"))
        build = {
            "input_file": TEXT,
            "output_dir": records,
            "spm_model_file": f"{vocabulary}/{SPEC_FILE}",
            **options,
            **RECORDS,
        }
        score = {
            "do_train": "false",
            "do_eval": True,
            "eval_input_file": records,
            "init_checkpoint": model,
            "output_dir": folders[what],
            "max_eval_steps": 1_000_000,
        }
        read = [TEXT, f"{vocabulary}/{SPEC_FILE}"]
        stages += [
            Stage(
                f"Mask the held-out text ({what})", records,
                "data_prep/create_pretraining_data.py", build, read, seconds=20,
            ),
            Stage(
                f"Evaluate {model} ({what})", folders[what],
                "run_pretraining.py", score, [f"{records}/manifest.json", *inputs], seconds=60,
            ),
        ]  # fmt: skip
    run_stages(stages)
    metrics = {}
    for (what, folder), build in zip(folders.items(), stages[::2]):
        shards = files.read_json(f"{build.folder}/manifest.json")["shards"]
        instances = sum(shard["examples"] for shard in shards)
        scores = files.read_json(f"{folder}/eval_results.json")
        metrics[what] = {"instances": instances, **scores}
    results = {
        "model": os.path.basename(model.rstrip("/")),
        # Where things lie on this machine is nobody's business.
        "commands": [stage.command().replace(output_dir, "runs/heldout") for stage in stages],
        "machine": describe_machine(),
        "metrics": metrics,
    }
    files.write_json(os.path.join(output_dir, RESULTS_FILE), results)
    return results


def table(results: dict[str, object]) -> list[list[str]]:
    """Rows of text: head, then a row for each kind of sequences."""
    columns = ["instances", "masked LM loss", "masked LM accuracy", "sentence order accuracy"]
    rows = [["sequences", *columns]]
    for what, found in results["metrics"].items():
        rows.append(
            [
                what,
                f"{found['instances']:,}",
                f"{found['masked_lm_loss']:.3f}",
                f"{found['masked_lm_accuracy']:.3f}",
                f"{found['sentence_order_accuracy']:.3f}",
            ]
        )
    return rows


def main() -> None:
    """Runs the command."""
    results = evaluate(FLAGS.model, FLAGS.output_dir)
    print(markdown(table(results)))
    print(f"Written to {FLAGS.output_dir}/{RESULTS_FILE}.")

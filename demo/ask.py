# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Classifies texts with an exported SavedModel; needs only tensorflow and tensorflow_text.

The one function that it uses from albert_tf keeps TensorFlow's log off the terminal.
"""

from __future__ import annotations

import json
import os

from absl import app, flags

from albert_tf.io.tensorflow_import import prepare_tensorflow

#: Texts that are not in the demo's books, and where they are from.
TEXTS = {
    "Nature and substance are one, by the preceding proposition.": "written for the demo",
    "There's the scarlet thread of murder running through the colourless skein of life, and our "
    "duty is to unravel it.": "from another book by Doyle, shortened",
    "The central bank raised its interest rate to bring down prices.": "written for the demo",
}

FLAGS = flags.FLAGS
flags.DEFINE_string("saved_model", None, "Folder of the SavedModel.", required=True)
flags.DEFINE_string("output_dir", None, "Folder for answers.json.", required=True)


def main(_: list[str]) -> None:
    """Prints and writes the answers."""
    prepare_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  It registers the operations that read text.

    classify = tf.saved_model.load(os.path.expanduser(FLAGS.saved_model))
    found = classify(list(TEXTS))
    answers = []
    for row, (text, source) in enumerate(TEXTS.items()):
        label = found["label"][row].numpy().decode()
        probability = float(max(found["probabilities"][row]))
        print(f"{text}\n→ {label} ({probability:.0%})")
        answers.append({"text": text, "source": source, "label": label, "probability": probability})
    path = os.path.join(os.path.expanduser(FLAGS.output_dir), "answers.json")
    with tf.io.gfile.GFile(path, "w") as f:
        json.dump({"answers": answers}, f)


if __name__ == "__main__":
    app.run(main)

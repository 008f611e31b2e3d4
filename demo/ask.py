# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Classifies one text with an exported SavedModel; needs only tensorflow and tensorflow_text.

The one function that it uses from albert_tf keeps TensorFlow's log off the terminal.
"""

from __future__ import annotations

import json
import os

from absl import app, flags

from albert_tf.io.tensorflow_import import prepare_tensorflow

FLAGS = flags.FLAGS
flags.DEFINE_string("saved_model", None, "Folder of the SavedModel.", required=True)
flags.DEFINE_string("text", None, "The text to classify.", required=True)
flags.DEFINE_string("output_dir", None, "Folder for answer.json.", required=True)


def main(_: list[str]) -> None:
    """Prints and writes the answer."""
    prepare_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  It registers the operations that read text.

    classify = tf.saved_model.load(os.path.expanduser(FLAGS.saved_model))
    found = classify([FLAGS.text])
    label, probability = found["label"][0].numpy().decode(), float(max(found["probabilities"][0]))
    print(f"{FLAGS.text}\n→ {label} ({probability:.0%})")
    path = os.path.join(os.path.expanduser(FLAGS.output_dir), "answer.json")
    with tf.io.gfile.GFile(path, "w") as f:
        json.dump({"text": FLAGS.text, "label": label, "probability": probability}, f)


if __name__ == "__main__":
    app.run(main)

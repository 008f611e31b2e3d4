# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.export.formats: what has no TensorFlow Lite model."""

import pytest

from albert_tf.errors import AlbertError
from albert_tf.export.formats import check_lite


@pytest.mark.parametrize("kind", ["model_with_mlm", "preprocessing", "squad", "multiple_choice"])
def test_what_tensorflow_lite_cannot_do_is_refused(kind):
    with pytest.raises(AlbertError, match=f"--export_type={kind} cannot be exported to TensorFlow"):
        check_lite(kind)
    check_lite("model")
    check_lite("classifier")

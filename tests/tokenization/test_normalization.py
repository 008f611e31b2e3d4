# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

import unicodedata

import pytest

from albert_tf.tokenization.normalization import normalize
from tests.tokenization.conftest import random_texts


def reference_normalize(text, lower_case, strip_accents):
    """The definition of A's preprocess_text, step by step and without short cuts."""
    text = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
    if strip_accents:
        text = "".join(c for c in text if not unicodedata.combining(c))
    return text.lower() if lower_case else text


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_normalisation_is_the_definition(lower_case, strip_accents):
    for text in [*random_texts(500, seed=3), "", " \n ", "A", "a\u0301\u0323b", "\U0001e2ec𐨿x"]:
        expected = reference_normalize(text, lower_case, strip_accents)
        assert normalize(text, lower_case, strip_accents) == expected

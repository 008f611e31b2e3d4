# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The models of Tables 1 to 4: exact parameter counts, and where the published numbers are from."""

from pathlib import Path

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.modeling.pretrainer import AlbertPretrainer
from benchmarks.paper.parameters import count, counts, markdown

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).resolve().parents[3]
#: Model: published millions, encoder with pooler, without it. Counted by hand from Table 1's sizes:
#: 30516 E (pieces, positions, types, normalisation) + E H + H + a layer's 12 H^2 + 13 H + H^2 + H.
GOLDEN = {
    "BERT base, not-shared E=768": (108, 109_081_344, 108_490_752),
    "BERT large": (334, 334_607_360, 333_557_760),
    "ALBERT base, all-shared E=128": (12, 11_683_584, 11_092_992),
    "ALBERT large": (18, 17_683_968, 16_634_368),
    "ALBERT xlarge": (60, 58_724_864, 54_528_512),
    "ALBERT xxlarge": (235, 222_595_584, 205_814_272),
    "not-shared E=64": (87, 87_648_000, 87_057_408),
    "all-shared E=64": (10, 9_681_408, 9_090_816),
    "shared-attention E=128": (64, 63_647_232, 63_056_640),
    "shared-FFN E=128": (38, 37_686_528, 37_095_936),
}


def test_counts_are_exact():
    found = {c.model: (c.published, c.encoder, c.without_pooler) for c in counts()}
    assert {name: found.get(name) for name in GOLDEN} == GOLDEN


def test_all_published_numbers_but_two_are_roundings_of_a_count():
    origins = {c.model: c.origin() for c in counts() if c.published}
    odd = {name: origin for name, origin in origins.items() if not origin.endswith("pooler")}
    assert odd == {
        "ALBERT xlarge": "with pooler, if positions had width H",
        "ALBERT xxlarge": "none of these",
    }
    shared = [o for name, o in origins.items() if "shared-" in name or name.startswith("all")]
    assert all(origin.startswith("with ") for origin in shared)


def test_the_count_with_wide_positions_is_that_of_the_appendix():
    # Table 12: 60M, 225M and 499M at H = 2048, 4096 and 6144.
    for hidden_size, published in ((1024, 18), (2048, 60), (4096, 225), (6144, 499)):
        config = AlbertConfig(30000, 128, hidden_size, 3, hidden_size // 64, 4 * hidden_size)
        assert round(count("", config, published).wide_positions / 1e6) == published


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
def test_a_built_model_has_the_parameters_counted(sharing):
    config = AlbertConfig(100, 8, 16, 4, 2, 64, parameter_sharing=sharing)
    assert AlbertPretrainer(config).count_params() == count("", config, None).pretraining


def test_the_page_has_the_table():
    assert markdown() in (ROOT / "docs/reproduction.md").read_text("utf-8")

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Messages of the library."""

import logging

from albert_tf.errors import AlbertError
from albert_tf.io.log import log


def test_messages_are_shown_like_output_and_warnings_on_standard_error(capsys):
    log.info("100% done")
    log.warning(AlbertError("one sentence."))
    assert capsys.readouterr() == ("100% done\n", "one sentence.\n")


def test_a_program_can_silence_messages(capsys):
    logger = logging.getLogger("albert_tf")
    logger.setLevel(logging.WARNING)
    try:
        log.info("done")
    finally:
        logger.setLevel(logging.INFO)
    assert capsys.readouterr() == ("", "")

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Messages of the library."""

import io

from albert_tf.errors import AlbertError
from albert_tf.io.log import log, show


def test_messages_are_shown_like_output_and_warnings_on_standard_error(capsys):
    log.info("100% done")
    log.warning(AlbertError("one sentence."))
    assert capsys.readouterr() == ("100% done\n", "one sentence.\n")


def test_lines_fit_a_terminal_and_stay_whole_in_files():
    text, path = "word " * 30 + "end.", f"{'folder/' * 15}file"
    for stream, longest in ((io.StringIO(), 154), (terminal := io.StringIO(), 79)):
        terminal.isatty = lambda: True
        show(f"{text}\n{path}", stream)
        *lines, last = stream.getvalue().splitlines()
        assert (max(map(len, lines)), last) == (longest, path)

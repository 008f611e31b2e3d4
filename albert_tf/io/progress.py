# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress with the remaining time: a bar in terminals and notebooks, plain lines elsewhere."""

from __future__ import annotations

import io
import sys

from tqdm import tqdm

from albert_tf.io import storage
from albert_tf.io.log import show

#: Seconds between lines if the output is not a terminal.
LINE_SECONDS = 10.0
#: Seconds before a bar appears, so that short work shows none.
_BAR_DELAY = 0.5


class Progress(tqdm):
    """Shows on standard error how much of `total` is done; a context manager.

    Args:
      label: what the work is.
      total: the amount of work; None if unknown.
      unit: unit of the amounts; bytes ("B") are shown as k, M, G.
      initial: the amount that an interrupted run did before.
    """

    monitor_interval = 0  # No thread: each update looks at the time.

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str = "B",
        initial: int = 0,
    ) -> None:
        self._lines = not _can_redraw()
        amount = "{percentage:3.0f}% {n_fmt}/{total_fmt} {remaining} left" if total else "{n_fmt}"
        super().__init__(
            total=total,
            initial=initial,
            unit=unit,
            unit_scale=unit == "B",
            bar_format=f"{label} {amount}  {{desc}}",
            file=io.StringIO() if self._lines else sys.stderr,  # See `display` about lines.
            mininterval=LINE_SECONDS if self._lines else 0.1,
            delay=LINE_SECONDS if self._lines else _BAR_DELAY,
            miniters=0,
            dynamic_ncols=True,
            leave=False if self._lines else None,  # None removes a bar below another one.
        )

    def update(self, amount: int = 1, text: str = "") -> bool | None:
        """Adds `amount` to what is done, and shows figures beside it; returns whether it is shown.

        The remaining time follows the speed of late, as the first work may include compilation.
        """
        self.set_description_str(text, refresh=False)
        return super().update(amount)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Draws the bar, or prints a line; see tqdm."""
        if not self._lines:
            return super().display(msg, pos)
        if msg is None:
            self.note(str(self).rstrip())
        return False

    def note(self, text: str) -> None:
        """Prints a line without disturbing a bar."""
        with tqdm.external_write_mode(file=sys.stderr):
            show(text, sys.stderr)


def _can_redraw() -> bool:
    """Returns whether standard error is a terminal, or a notebook without another bar.

    Notebooks do not move the cursor up, so a bar must be the only one.
    """
    in_notebook = type(sys.stderr).__module__ == "ipykernel.iostream"
    return len(tqdm._instances) == 1 if in_notebook else sys.stderr.isatty()


def total_bytes(paths: list[str]) -> int:
    """Returns the total size of files as stored."""
    return sum(map(storage.size, paths))

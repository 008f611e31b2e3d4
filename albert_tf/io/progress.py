# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress with the remaining time: a bar in terminals and notebooks, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time

from tqdm import tqdm

from albert_tf.io import storage

#: Seconds before the first line and between lines if the output is not a terminal.
FIRST_LINE_SECONDS = 2.0
LINE_SECONDS = 10.0


class Progress:
    """Shows on standard error how much of `total` is done; a context manager.

    Args:
      label: what the work is.
      total: the amount of work; None if unknown.
      unit: unit of the amounts; bytes ("B") are shown as k, M, G.
      initial: the amount that an interrupted run did before.
      silent: show nothing, because the work is done at once.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str = "B",
        initial: int = 0,
        silent: bool = False,
    ) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._done = initial
        # The amount done and the time at the first update, from which the remaining time is
        # estimated: what precedes it (loading, compiling) does not count.
        self._timed_from: tuple[int, float] | None = None
        self._next_line = math.inf if silent else time.monotonic() + FIRST_LINE_SECONDS
        self._bar = None
        if _can_redraw() and not silent:
            amount = "{n_fmt}"
            if total:
                amount = "{percentage:3.0f}% {n_fmt}/{total_fmt} {remaining} left"
            self._bar = tqdm(
                total=total,
                initial=initial,
                unit=unit,
                unit_scale=unit == "B",
                dynamic_ncols=True,
                bar_format=f"{label} {amount}  {{desc}}",
                leave=None,  # Removes a bar below another one when it is done.
            )

    def update(self, amount: int, text: str = "", show: bool = False) -> None:
        """Adds `amount` to what is done.

        Args:
          amount: amount of work since the last call.
          text: figures to show beside it.
          show: whether to print a line now even if none is due.
        """
        self._done += amount
        if self._bar is not None:
            self._bar.set_description_str(text, refresh=False)
            self._bar.update(amount)
        elif show or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            self.note(self._line(text))
        if self._timed_from is None:
            self._timed_from = self._done, time.monotonic()

    def speed_changes(self) -> None:
        """Estimates the remaining time by the speed from here on."""
        self._timed_from = None  # The bar estimates it by the latest speed anyway.

    def note(self, text: str) -> None:
        """Prints a line without disturbing the bar."""
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()

    def _line(self, text: str) -> str:
        size = tqdm.format_sizeof if self._unit == "B" else lambda x, _: f"{x}"
        parts = [f"{self._label} {size(self._done, self._unit)}"]
        if self._total:
            parts[0] += f"/{size(self._total, self._unit)}"
        if text:
            parts.append(text)
        if self._total and self._timed_from and self._done > self._timed_from[0]:
            done, began = self._timed_from
            seconds = (time.monotonic() - began) / (self._done - done)
            left = seconds * max(0, self._total - self._done)
            parts.append(f"{tqdm.format_interval(left)} left")
        return "  ".join(parts)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()


def _can_redraw() -> bool:
    """Returns whether standard error is a terminal, or a notebook without another bar.

    Notebooks do not move the cursor up, so a bar must be the only one.
    """
    in_notebook = type(sys.stderr).__module__ == "ipykernel.iostream"
    return not tqdm._instances if in_notebook else sys.stderr.isatty()


def total_bytes(paths: list[str]) -> int:
    """Returns the total size of files as stored."""
    return sum(storage.size(path) for path in paths)

"""Locks on which no process stops for ever.

A thread may take again what it has, as a handler of a signal does: so they are reentrant. While the interpreter ends
nobody waits for one: the threads in the background stand still by then with what they have locked, and the thread that
still runs a generator or a ``__del__`` which ends a hold has none beside it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, ContextManager

_NOBODY: ContextManager[Any] = contextlib.nullcontext()


def taking(lock: ContextManager[Any]) -> ContextManager[Any]:
    """Returns what a ``with`` takes the lock by: the lock itself, in whose taking no signal can come in between."""
    return _NOBODY if sys.is_finalizing() else lock


class Event(threading.Event):
    """An event that is set for others. While the interpreter ends there are none."""

    def set(self) -> None:
        if not sys.is_finalizing():
            super().set()

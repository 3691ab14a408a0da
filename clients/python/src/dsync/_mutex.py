"""The lock of this package, on which no process stops for ever.

Its thread may take it again, as a handler of a signal does. While the interpreter ends nobody waits for it: the threads
in the background stand still by then with what they have locked, and the thread that still runs a generator or a
``__del__`` which ends a hold has none beside it.
"""

from __future__ import annotations

import os
import sys
import threading


class Mutex:
    def __init__(self) -> None:
        self._lock = threading.RLock()

    def survives_forks(self) -> None:
        """Has no child of a fork find it locked by another thread, which the child does not have."""
        if hasattr(os, "register_at_fork"):
            lock = self._lock
            os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False) and not sys.is_finalizing():
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        try:  # noqa: SIM105
            self._lock.release()
        except RuntimeError:
            pass  # It was not waited for. Nothing is as cheap as this where it was.


class Event(threading.Event):
    """An event that is set for others. While the interpreter ends there are none."""

    def set(self) -> None:
        if not sys.is_finalizing():
            super().set()

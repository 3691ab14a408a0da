"""One thread that calls back at given moments.

It tells the holds of this process when their leases are over. It does no I/O, so no server can keep it from telling.
Callbacks run in it one after the other and must not block.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from typing import Callable, List, Optional, Tuple

from .._lease import now
from .._retry import log

#: Called at its moment; returns the next moment, or ``None`` if that was all.
Callback = Callable[[], Optional[float]]


class Alarm:
    """An appointment, until it is cancelled."""

    def __init__(self, callback: Callback) -> None:
        self._callback: Optional[Callback] = callback

    def cancel(self) -> None:
        # The entry of the heap stays until its moment; without the callback it keeps nothing alive.
        self._callback = None

    def ring(self) -> Optional[float]:
        callback = self._callback
        return None if callback is None else callback()


class Clock:
    """The appointments of this process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._due: List[Tuple[float, int, Alarm]] = []
        self._order = itertools.count()
        self._thread: Optional[threading.Thread] = None

    def at(self, moment: float, callback: Callback) -> Alarm:
        """Calls back at this moment of :func:`dsync._lease.now`."""
        if self._pid != os.getpid():
            # Threads do not survive a fork, and the holds belong to the parent.
            self._reset()
        alarm = Alarm(callback)
        with self._changed:
            heapq.heappush(self._due, (moment, next(self._order), alarm))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dsync-leases", daemon=True)
                self._thread.start()
            elif self._due[0][2] is alarm:
                self._changed.notify()
        return alarm

    def _run(self) -> None:
        while True:
            alarm = self._next()
            try:
                again = alarm.ring()
            except Exception:
                log.exception("a lease could not be watched")
                continue
            if again is not None:
                with self._changed:
                    heapq.heappush(self._due, (again, next(self._order), alarm))

    def _next(self) -> Alarm:
        with self._changed:
            while True:
                wait = self._due[0][0] - now() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)


CLOCK = Clock()

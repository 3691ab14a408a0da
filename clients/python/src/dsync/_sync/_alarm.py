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

#: Seconds by which a callback can be late, unless it says otherwise.
LATE_BY = 2.0

#: Called at its moment; returns the next moment, or ``None`` if that was all.
Callback = Callable[[], Optional[float]]


class Alarm:
    """An appointment, until it is cancelled."""

    def __init__(self, clock: Clock, callback: Callback, late_by: float) -> None:
        self._clock = clock
        self._callback: Optional[Callback] = callback
        self.late_by = late_by

    @property
    def is_cancelled(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._clock.has_cancelled()

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
        self._cancelled = 0
        self._order = itertools.count()
        self._thread: Optional[threading.Thread] = None
        #: Seconds after which the thread looks at the clock again.
        self._slice = LATE_BY

    def at(self, moment: float, callback: Callback, late_by: float = LATE_BY) -> Alarm:
        """Calls back at this moment of :func:`dsync._lease.now`.

        If the machine is suspended in between, it can be late by so many seconds.
        """
        if self._pid != os.getpid():
            # Threads do not survive a fork, and the holds belong to the parent.
            self._reset()
        alarm = Alarm(self, callback, late_by)
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="dsync-leases", daemon=True)
                # It can fail. Then the next one tries again.
                thread.start()
                self._thread = thread
            heapq.heappush(self._due, (moment, next(self._order), alarm))
            if self._due[0][2] is alarm or late_by < self._slice:
                self._changed.notify()
        return alarm

    def has_cancelled(self) -> None:
        """Forgets the cancelled alarms when they are the greater part: their moments can be hours away."""
        with self._changed:
            self._cancelled += 1
            if self._cancelled > len(self._due) / 2:
                self._due = [due for due in self._due if not due[2].is_cancelled]
                heapq.heapify(self._due)
                self._cancelled = 0

    def _run(self) -> None:
        while True:
            alarm = self._next()
            if alarm.is_cancelled:
                continue
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
                    alarm = heapq.heappop(self._due)[2]
                    self._cancelled -= alarm.is_cancelled
                    return alarm
                # The wait itself stands still while the machine is suspended.
                self._slice = min((alarm.late_by for _, _, alarm in self._due), default=LATE_BY)
                self._changed.wait(None if wait is None else min(wait, self._slice))


CLOCK = Clock()

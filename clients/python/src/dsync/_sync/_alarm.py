"""One thread that calls back at given moments.

It tells the holds of this process when their leases are over. It does no I/O, so no server can keep it from telling.
Callbacks run in it one after the other and must not block.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from typing import Callable, Optional

from .._lease import now
from .._mutex import taking
from .._retry import log

#: Called at its moment; returns the next moment, or ``None`` if that was all.
Callback = Callable[[], Optional[float]]


class Alarm:
    """An appointment, until it is cancelled."""

    def __init__(self, clock: Clock, callback: Callback, late_by: float) -> None:
        self._clock = clock
        self.ring = callback
        self.late_by = late_by

    def cancel(self) -> None:
        self._clock.set(self, None)


class Clock:
    """The appointments of this process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._moments: dict[Alarm, float] = {}
        self._thread: Optional[threading.Thread] = None
        #: When the thread looks at the clock again.
        self._looks_at = math.inf

    def at(self, moment: float, callback: Callback, late_by: float) -> Alarm:
        """Calls back at this moment of :func:`dsync._lease.now`.

        If the machine is suspended in between, it can be late by so many seconds.
        """
        if self._pid != os.getpid():
            # Threads do not survive a fork, and the holds belong to the parent.
            self._reset()
        if sys.is_finalizing():
            raise RuntimeError("the interpreter ends, and no thread can watch a lease")
        alarm = Alarm(self, callback, late_by)
        with taking(self._changed):
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="dsync-leases", daemon=True)
                # It can fail. Then the next one tries again.
                thread.start()
                self._thread = thread
            self.set(alarm, moment)
            if min(moment, now() + late_by) < self._looks_at:
                self._changed.notify()
        return alarm

    def set(self, alarm: Alarm, moment: Optional[float]) -> None:
        """Has the alarm ring at this moment, or forgets it: its moment can be hours away."""
        with taking(self._changed):
            if moment is None:
                self._moments.pop(alarm, None)
            else:
                self._moments[alarm] = moment

    def _run(self) -> None:
        while True:
            for alarm in self._due():
                again = None
                try:
                    # Unless it was cancelled meanwhile.
                    again = alarm.ring() if alarm in self._moments else None
                except Exception:
                    log.exception("a lease could not be watched")
                with self._changed:
                    if alarm in self._moments:
                        self.set(alarm, again)

    def _due(self) -> list[Alarm]:
        """Waits for alarms whose moment has come, and returns them in that order."""
        with self._changed:
            while True:
                moment, moments = now(), self._moments
                due = [alarm for alarm in moments if moments[alarm] <= moment]
                if due:
                    return sorted(due, key=moments.__getitem__)
                # The wait itself stands still while the machine is suspended.
                longest = min((alarm.late_by for alarm in moments), default=math.inf)
                self._looks_at = min(moment + longest, *moments.values(), math.inf)
                self._changed.wait(None if self._looks_at == math.inf else self._looks_at - moment)


CLOCK = Clock()

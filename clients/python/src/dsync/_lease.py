"""When a hold counts as lost, by the caller's own clock.

In a partition no answer comes, while the server's lease runs out and the next waiter is served. So silence proves
nothing: a lease counts from the moment at which the last successful request was *sent*, which is before the server's
own count began. The hold counts as lost a margin before the lease is over, so that the work can stop in time.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ._mutex import taking
from ._times import MARGIN_AT_MOST

# CLOCK_BOOTTIME, where there is one, goes on while the machine is suspended, as the server's leases do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)

#: Seconds by which the wall clock runs ahead of the monotonic clock, between two readings, if it has jumped.
_JUMP = 0.1


class Clocks:
    """The monotonic clock, and what the wall clock has jumped ahead of it. Thread-safe.

    Where no clock goes on while the machine is suspended (macOS, Windows), the wall clock is right afterwards. So each
    jump ahead counts, also one that somebody has set: a lease can end early by that, but never late.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        # The handler of a signal may ask for the time while its thread is asking.
        self._lock = threading.RLock()
        self._ahead = 0.0
        self._offset: Optional[float] = None

    def now(self) -> float:
        with taking(self._lock):
            monotonic, offset = self._read()
            if self._offset is not None and offset - self._offset > _JUMP:
                self._ahead += offset - self._offset
            self._offset = offset
            return monotonic + self._ahead

    @staticmethod
    def _read() -> tuple[float, float]:
        """Returns the monotonic clock, and the offset of the wall clock, with nothing in between the two readings."""
        while True:
            before, wall, after = time.monotonic(), time.time(), time.monotonic()
            if after - before < _JUMP / 10:
                return after, wall - after


_CLOCKS = Clocks()
if _CLOCK is None and hasattr(os, "register_at_fork"):
    # Another thread may have the lock at the moment of a fork.
    os.register_at_fork(after_in_child=_CLOCKS.reset)


def now() -> float:
    """Returns the time in seconds of a clock that never goes back, and goes on while the machine is suspended."""
    return _CLOCKS.now() if _CLOCK is None else time.clock_gettime(_CLOCK)


def default_margin(lease: float) -> float:
    """Returns a tenth of the lease, at most two seconds."""
    return min(lease / 10, MARGIN_AT_MOST)


#: Seconds of the shortest slice of a wait.
SHORTEST_SLICE = 0.05


#: Why the child of a fork holds nothing.
OF_THE_PARENT = "it belongs to the parent of this process, which was forked since"


@dataclass(eq=False)
class Asked:
    """A renewal that was sent, until a later one is known to have come behind it."""

    sent: float
    seconds: float
    #: The end of the lease if the server goes by this one.
    until: float
    #: From when on a renewal that is sent comes behind it: it was answered, or nothing is heard of it any more.
    over_at: float = math.inf


class Lease:
    """The lease of one hold. Thread-safe. In the child of a fork it has ended: the parent goes on, unheard."""

    def __init__(self, seconds: float, margin: float, sent: float, max_hold: Optional[float] = None) -> None:
        self.become(seconds, margin)
        self._sent = sent
        #: Seconds of the last lease that was granted: less than ``seconds`` where ``max_hold`` ends sooner.
        self._granted = seconds
        self._max_hold = max_hold
        self._lost_at_latest = math.inf if max_hold is None else sent + max_hold
        #: Those that may be the last that the server has carried out, or will.
        self._asked: list[Asked] = []
        self._ended: Optional[str] = None
        #: Whether nobody refers to the hold any more, so that it is not renewed.
        self.is_forgotten = False
        self._trouble: Optional[BaseException] = None
        # A handler of a signal, or the end of a generator that is collected, may look while its thread is looking.
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def become(self, seconds: float, margin: float) -> None:
        """Has the lease be so long from its next renewal on."""
        self.seconds = seconds
        self._margin = margin
        #: Seconds after which a wait for a moment of the lease looks at the clock again: no wait that the system offers
        #: goes on while the machine is suspended, and after that it would last as long as before.
        self.slice = max(SHORTEST_SLICE, min(margin or seconds, default_margin(seconds)))

    def next_slice(self) -> float:
        """Returns the moment of the next look at the clock."""
        return now() + self.slice

    def asks_for(self, seconds: float) -> float:
        """Returns for how many seconds a renewal asks now: no longer than ``max_hold`` allows."""
        return min(seconds, self._lost_at_latest - now())

    def asks(self, seconds: Optional[float] = None, margin: Optional[float] = None) -> Asked:
        """Returns a renewal, to be sent at once. No more is certain than it asks for, until a later one is answered.

        Its answer can be lost; or it arrives behind another one, and the server goes by the last.
        """
        sent, granted = now(), self.asks_for(self.seconds if seconds is None else seconds)
        asked = Asked(sent, granted, sent + granted - (self._margin if margin is None else margin))
        with taking(self._lock):
            self._asked.append(asked)
        return asked

    def renewed(self, asked: Asked) -> None:
        """Notes that the server has renewed the lease for this."""
        with taking(self._lock):
            self._trouble = None
            asked.over_at = now()
            if asked.sent >= self._sent:
                self._sent, self._granted = asked.sent, asked.seconds
                self._asked = [each for each in self._asked if each is not asked and each.over_at > asked.sent]

    def not_renewed(self, error: BaseException, asked: Optional[Asked] = None) -> None:
        """Notes why a renewal was not sent or has no answer, for the message if the hold is lost."""
        self._trouble = error
        if asked is not None:
            asked.over_at = now()

    def end(self, why: str) -> None:
        """Notes that the hold has ended. The first reason stays."""
        if not self.is_of_the_parent:
            with taking(self._lock):
                self._ended = self._ended or why

    @property
    def has_ended(self) -> bool:
        """Whether the hold is told as over."""
        return self._ended is not None

    @property
    def is_of_the_parent(self) -> bool:
        """Whether this process is a child of the one that got the hold. Asks first of all: a lock may stay locked."""
        return self._pid != os.getpid()

    def lost_at(self) -> float:
        """Returns the moment from which the hold counts as lost, unless it is renewed before."""
        with taking(self._lock):
            granted_until = self._sent + self._granted - self._margin
            return min(granted_until, self._lost_at_latest, *(asked.until for asked in self._asked))

    def renewal_due_at(self) -> float:
        """Returns the moment of the next renewal: when a third of the lease has passed, or one needs a later one."""
        with taking(self._lock):
            return min(self._sent + self.seconds / 3, *(asked.over_at for asked in self._asked), math.inf)

    def left(self) -> float:
        """Returns the seconds until the hold counts as lost, 0 once it does."""
        return 0.0 if self.is_of_the_parent or self._ended is not None else max(0.0, self.lost_at() - now())

    def why_lost(self) -> Optional[str]:
        """Returns why the hold is lost, or ``None`` while it is not."""
        if self.is_of_the_parent:
            return OF_THE_PARENT
        if self._ended is not None:
            return self._ended
        if now() < self.lost_at():
            return None
        if self._max_hold is not None and (self._granted < self.seconds or now() >= self._lost_at_latest):
            return f"its max_hold of {self._max_hold:g} s is over"
        if self.is_forgotten:
            return "nobody refers to it any more, so it was not renewed"
        trouble = f" ({self._trouble})" if self._trouble is not None else ""
        return f"no renewal was answered in time{trouble}"


def weakly(method: Callable[..., Any], otherwise: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """Returns what calls this method of a hold without keeping the hold. Once it is gone, the other is called."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        return (reference() or otherwise)(*arguments)

    return call

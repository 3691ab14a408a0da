"""When a hold counts as lost, by the caller's own clock.

In a partition no answer comes, while the server's lease runs out and the next waiter is served. So silence proves
nothing: a lease counts from the moment at which the last successful request was *sent*, which is before the server's
own count began. The hold counts as lost a margin before the lease is over, so that the work can stop in time.
"""

from __future__ import annotations

import threading
import time
from typing import Optional

# CLOCK_BOOTTIME, where there is one, goes on while the machine is suspended, as the server's leases do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Returns the time in seconds of a clock that never steps."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def default_margin(lease: float) -> float:
    """Returns a tenth of the lease, at most two seconds."""
    return min(lease / 10, 2.0)


class Lease:
    """The lease of one hold. Thread-safe."""

    def __init__(self, seconds: float, margin: float, sent: float) -> None:
        self.seconds = seconds
        self._margin = margin
        self._sent = sent
        self._ended: Optional[str] = None
        self._trouble: Optional[BaseException] = None
        self._lock = threading.Lock()

    def renewed(self, sent: float) -> None:
        """Notes that the server has renewed the lease, for a request that was sent at this moment."""
        with self._lock:
            self._sent = max(self._sent, sent)
            self._trouble = None

    def not_renewed(self, error: BaseException) -> None:
        """Notes why the last renewal failed, for the message if the hold is lost."""
        self._trouble = error

    def end(self, why: str) -> None:
        """Notes that the hold has ended. The first reason stays."""
        with self._lock:
            self._ended = self._ended or why

    @property
    def has_ended(self) -> bool:
        """Whether :meth:`end` was called; not whether the time is over."""
        return self._ended is not None

    def lost_at(self) -> float:
        """Returns the moment from which the hold counts as lost, unless it is renewed before."""
        with self._lock:
            return self._sent + self.seconds - self._margin

    def renewal_due_at(self) -> float:
        """Returns the moment of the next renewal: when a third of the lease has passed."""
        with self._lock:
            return self._sent + self.seconds / 3

    def left(self) -> float:
        """Returns the seconds until the hold counts as lost, 0 once it does."""
        return 0.0 if self._ended is not None else max(0.0, self.lost_at() - now())

    def why_lost(self) -> Optional[str]:
        """Returns why the hold is lost, or ``None`` while it is not."""
        if self._ended is not None:
            return self._ended
        if now() < self.lost_at():
            return None
        trouble = f" ({self._trouble})" if self._trouble is not None else ""
        return f"no renewal was answered in time{trouble}"

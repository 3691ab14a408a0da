"""A hold of a synchronous client."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from .. import _steps
from .._hold import HoldBase, LostOfAHold
from .._lease import weakly
from .._mutex import Event
from .._retry import log
from .._settings import Settings
from .._steps import Grant
from ._alarm import CLOCK
from ._threads import Runs


class _Lost(LostOfAHold, Event):
    def wait(self, timeout: Optional[float] = None) -> bool:
        return self._lease.is_of_the_parent or super().wait(timeout)


class Hold(Runs, HoldBase):
    """A lock, permits, a membership or a run that this process holds.

    It is renewed in the background at each third of its lease, until it is released or lost, or until nobody refers to
    it any more.
    """

    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        super().__init__(client, grant, settings)
        #: Set when the hold is lost.
        self.lost: threading.Event = _Lost(self._lease)
        # A thread is needed only by holds that live long enough to be renewed.
        try:
            self._watch()
        except BaseException:
            # No thread can be started, so nobody would renew the hold or tell its loss.
            self._run(_steps.withdraw, self._request)
            raise

    def renew(self, lease: Optional[float] = None) -> bool:
        """Renews the lease now. Returns whether the hold still lived.

        There is seldom a reason to: the background does it. With ``lease`` it is so many seconds long from now on.
        Raises the error of the connection if the server does not answer.
        """
        return self._run(self._renew, lease)

    def release(self) -> bool:
        """Ends the hold. Returns whether it still lived.

        Repeats the request for the lease and five seconds more, while the server can know the hold; asks once if the
        hold is lost. Then raises the error of the connection, and the lease ends the hold.
        """
        return self._run(self._end, "RELEASE")

    def _watch(self) -> None:
        moment = min(self._renewed.due_at, self._lease.lost_at())
        # While the hold is collected it is out of reach for a moment.
        self._alarm = CLOCK.at(moment, weakly(self._look, self._lease.next_slice), self._lease.slice)

    def _outlives(self) -> None:
        self._alarm.ring = self._look

    def _tell(self, on_lost: Callable[[Any], object]) -> None:
        # In a thread of its own: the clock tells other holds, too.
        told = threading.Thread(target=on_lost, args=(self,), name="dsync-on-lost", daemon=True)
        try:
            told.start()
        except RuntimeError:
            log.exception("on_lost of %r could not be called", self.key)

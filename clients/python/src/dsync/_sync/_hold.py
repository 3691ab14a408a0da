"""A hold of a synchronous client."""

from __future__ import annotations

import threading
from typing import Any, Optional

from .. import _steps
from .._hold import HoldBase
from .._lease import Lease, now, weakly
from .._renewals import renewals_of
from .._retry import log
from .._settings import Settings
from .._steps import Grant, Result, Script
from ..errors import HoldLost
from ._alarm import CLOCK
from ._lines import lines_of
from ._renewals import Renewals
from ._talk import run


class _Lost(threading.Event):
    """Set in the child of a fork as well: nobody is there to set it."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        return self._lease.is_of_the_parent or super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self._lease.is_of_the_parent or super().wait(timeout)


class Hold(HoldBase):
    """A lock, permits, a membership or a run that this process holds.

    It is renewed in the background at each third of its lease, until it is released or lost, or until nobody refers to
    it any more.
    """

    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        super().__init__(client, grant, settings)
        self._renewals = renewals_of(client, lines_of(client).route, self._renewed, Renewals)
        #: Set when the hold is lost.
        self.lost: threading.Event = _Lost(self._lease)
        # A thread is needed only by holds that live long enough to be renewed.
        try:
            self._watch()
        except BaseException:
            # No thread can be started, so nobody would renew the hold or tell its loss.
            self._run(_steps.withdraw(self._request))
            raise

    def renew(self, lease: Optional[float] = None) -> bool:
        """Renews the lease now. Returns whether the hold still lived.

        There is seldom a reason to: the background does it. With ``lease`` it is so many seconds long from now on.
        Raises the error of the connection if the server does not answer.
        """
        return self._run(self._renew(lease))

    def release(self) -> bool:
        """Ends the hold. Returns whether it still lived.

        Repeats the request for the lease and five seconds more, while the server can know the hold; asks once if the
        hold is lost. Then raises the error of the connection, and the lease ends the hold.
        """
        return (self._run(self._end("RELEASE"))).is_ended

    def _run(self, script: Script[Result]) -> Result:
        return run(script, self._client, self.key)

    def _watch(self) -> None:
        moment = min(self._renewed.due_at, self._lease.lost_at())
        self._alarm = CLOCK.at(moment, weakly(self._wake), self._lease.slice)

    def _wake(self) -> Optional[float]:
        """Called by the clock: the next renewal is due, or the lease is over. Returns when to be called again."""
        why = self._lease.why_lost()
        if why is not None:
            self._lose(why)
            return None
        if not self._has_begun:
            try:
                self._renewals.begin(self._client)
            except RuntimeError as error:
                # There are too many threads at the moment. The loss has to be told all the same.
                log.warning("%r cannot be renewed: %s", self.key, error)
                self._lease.not_renewed(error)
                return min(now() + self._lease.seconds / 10, self._lease.lost_at())
            self._has_begun = True
        return self._lease.lost_at()

    def _lose(self, why: str) -> None:
        # A renewal can overtake the answer to the release, and finds no hold then.
        if self._is_ending or self.lost.is_set():
            return  # Also in the child of a fork, for which `lost` is set from the beginning.
        self._lease.end(why)
        self.lost.set()
        log.warning("%s", HoldLost(self.key, self.fence, why))
        if self._settings.on_lost is not None:
            # In a thread of its own: the clock tells other holds, too.
            told = threading.Thread(target=self._settings.on_lost, args=(self,), name="dsync-on-lost", daemon=True)
            try:
                told.start()
            except RuntimeError:
                log.exception("on_lost of %r could not be called", self.key)

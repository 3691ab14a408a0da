"""A hold of a synchronous client."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Tuple

from .. import _steps
from .._lease import Lease, now, weakly
from .._protocol import Word
from .._retry import log, passes
from .._settings import Settings
from .._steps import Finished, Grant, Script
from ..errors import HoldLost
from ._alarm import CLOCK
from ._talk import run


def _renew(script: Script[None], client: Any, key: str, stop: threading.Event) -> None:
    """The work of a thread, which must not keep the hold: it would live for ever by its own renewal."""
    try:
        run(script, client, key, stop)
    except Exception:
        log.exception("%r is not renewed any more", key)


class _Lost(threading.Event):
    """Set in the child of a fork as well: nobody is there to set it."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        return self._lease.is_of_the_parent or super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self._lease.is_of_the_parent or super().wait(timeout)


class Hold:
    """A lock, permits, a membership or a run that this process holds.

    It is renewed in the background at each third of its lease, until it is released or lost, or until nobody refers to
    it any more.
    """

    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        self._client = client
        self._request = grant.request
        self._settings = settings
        self._lease = Lease(settings.lease, settings.margin_seconds, grant.sent)
        self._stop = threading.Event()
        self._is_ending = False
        self._renewer: Optional[threading.Thread] = None
        self.key = grant.request.key
        #: The public number of the hold. It only grows from hold to hold: the resource can refuse an older one.
        self.fence = grant.fence
        #: Which attempt at the work this is, from 1; ``None`` outside work-once.
        self.attempt = grant.attempt
        #: The lowest number from 0 that no other hold had when it was granted; ``None`` unless asked for (``index``).
        self.index = grant.index
        #: Set when the hold is lost.
        self.lost: threading.Event = _Lost(self._lease)
        # A thread is needed only by holds that live long enough to be renewed.
        try:
            moment = min(self._lease.renewal_due_at(), self._lease.lost_at())
            self._alarm = CLOCK.at(moment, weakly(self._wake), self._lease.slice)
        except BaseException:
            # No thread can be started, so nobody would renew the hold or tell its loss.
            self._run(_steps.withdraw(self._request))
            raise

    def __del__(self) -> None:
        self._lease.forget()

    def __repr__(self) -> str:
        return f"<Hold of {self.key!r}, fence {self.fence}, {self.left():.1f} s left>"

    def left(self) -> float:
        """Returns for how many seconds the hold is certain without another renewal; 0 when it is lost or released."""
        return self._lease.left()

    def raise_if_lost(self) -> None:
        """Raises :class:`~dsync.HoldLost` if the hold is lost. It asks this process's clock, not the server."""
        why = self._lease.why_lost()
        if why is not None:
            self._lose(why)
            raise HoldLost(self.key, self.fence, why)

    def renew(self) -> bool:
        """Renews the lease now. Returns whether the hold still lived.

        There is seldom a reason to: the background does it. Raises the error of the connection if the server does not
        answer.
        """
        if self._lease.is_of_the_parent:
            return False
        sent = now()
        why = self._run(_steps.renew_now(self._request))
        if why is None:
            self._lease.renewed(sent)
            return True
        self._lose(why)
        return False

    def release(self) -> bool:
        """Ends the hold. Returns whether it still lived.

        Repeats the request for the lease and five seconds more, while the server can know the hold; asks once if the
        hold is lost. Then raises the error of the connection, and the lease ends the hold.
        """
        return self._end("RELEASE").is_ended

    def _end_quietly(self, verb: str, *more: Word) -> bool:
        """Ends the hold after its block. The work is over, so a server out of reach is no error of the block.

        Returns whether the server says that the hold had ended before.
        """
        try:
            ended = self._end(verb, *more)
        except Exception as error:
            if not passes(error):
                raise
            log.warning("%r could not be released, its lease will end it: %s", self.key, error)
            return False
        return ended.at_once and not ended.is_ended

    def _end(self, verb: str, *more: Word) -> Finished:
        """Sends RELEASE, DONE or FAIL. The hold is renewed until the server has answered."""
        # A release of a hold that is lost is a courtesy. The result of work counts even then.
        is_worth_it = verb == "DONE" or self._lease.why_lost() is None
        retry_for = _steps.lives_for(self._settings.lease) if is_worth_it else 0.0
        return self._finish(_steps.finish(self._request.verb(verb, *more), self.key, retry_for))

    def _record(self, done: Tuple[Word, ...], failed: Callable[[Exception], Tuple[Word, ...]]) -> Finished:
        """Sends DONE. If it is refused, sends FAIL with what ``failed`` returns, and raises the refusal.

        The server's word counts here, not the clock: DONE after a lapse is accepted unless another has begun.
        """
        verb, lives_for = self._request.verb, _steps.lives_for(self._settings.lease)
        refused = lambda refusal: verb("FAIL", *failed(refusal))  # noqa: E731
        return self._finish(_steps.record(verb("DONE", *done), refused, self.key, lives_for))

    def _finish(self, finishing: Script[Finished]) -> Finished:
        if self._lease.is_of_the_parent:
            return Finished(is_ended=False, at_once=True)
        self._is_ending = True
        try:
            ended: Finished = self._run(finishing)
            return ended
        finally:
            self._stop.set()
            self._alarm.cancel()
            self._lease.end("it was released")

    def _run(self, script: Any) -> Any:
        return run(script, self._client, self.key)

    def _wake(self) -> Optional[float]:
        """Called by the clock: the next renewal is due, or the lease is over. Returns when to be called again."""
        why = self._lease.why_lost()
        if why is not None:
            self._lose(why)
            return None
        if self._renewer is None:
            script = _steps.renew(self._request, self._lease, weakly(self._lose))
            parts = (script, self._client, self.key, self._stop)
            renewer = threading.Thread(target=_renew, args=parts, name=f"dsync-renews-{self.key}", daemon=True)
            try:
                renewer.start()
            except RuntimeError as error:
                # There are too many threads at the moment. The loss has to be told all the same.
                log.warning("%r cannot be renewed: %s", self.key, error)
                self._lease.not_renewed(error)
                return min(now() + self._lease.seconds / 10, self._lease.lost_at())
            self._renewer = renewer
        return self._lease.lost_at()

    def _lose(self, why: str) -> None:
        # A renewal can overtake the answer to the release, and finds no hold then.
        if self._is_ending or self.lost.is_set():
            return  # Also in the child of a fork, for which `lost` is set from the beginning.
        self._lease.end(why)
        self._stop.set()
        self.lost.set()
        log.warning("%s", HoldLost(self.key, self.fence, why))
        if self._settings.on_lost is not None:
            # In a thread of its own: the clock tells other holds, too.
            told = threading.Thread(target=self._settings.on_lost, args=(self,), name="dsync-on-lost", daemon=True)
            try:
                told.start()
            except RuntimeError:
                log.exception("on_lost of %r could not be called", self.key)

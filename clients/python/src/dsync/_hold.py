"""What the holds of threads and of tasks have in common: all but how a loss is told, and who performs the scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional, Tuple

from . import _steps
from ._lease import Lease, now, weakly
from ._protocol import Word
from ._renewals import Renewed
from ._retry import log, passes
from ._settings import Settings
from ._steps import Finished, Grant, Script
from .errors import HoldLost


class HoldBase:
    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        self._client = client
        self._request = grant.request
        self._settings = settings
        self._lease = Lease(settings.lease, settings.margin_seconds, grant.sent, settings.max_hold)
        self._renewed = Renewed(self._request, self._lease, settings.confirm, weakly(self._lose))
        self._renewals: Any = None
        #: What calls when the renewals have to begin, or when the lease is over.
        self._alarm: Any = None
        self._has_begun = False
        self._is_ending = False
        #: How often it has been entered by the thread or task that has it (``reentrant``).
        self._depth = 1
        self.key = grant.request.key
        #: The public number of the hold. It only grows from hold to hold: the resource can refuse an older one.
        self.fence = grant.fence
        #: Which attempt at the work this is, from 1; ``None`` outside work-once.
        self.attempt = grant.attempt
        #: The lowest number from 0 that no other hold had when it was granted; ``None`` unless asked for (``index``).
        self.index = grant.index

    def __del__(self) -> None:
        self._lease.forget()

    def __repr__(self) -> str:
        return f"<Hold of {self.key!r}, fence {self.fence}, {self.left():.1f} s left>"

    def left(self) -> float:
        """Returns for how many seconds the hold is certain without another renewal; 0 when it is lost or released."""
        return self._lease.left()

    def raise_if_lost(self) -> None:
        """Raises :class:`~dsync.HoldLost` if the hold is lost. It asks this process's clock, not the server.

        In asyncio a block that awaits something is cancelled anyway; this is for long stretches without ``await``.
        """
        why = self._lease.why_lost()
        if why is not None:
            self._lose(why)
            raise HoldLost(self.key, self.fence, why)

    def _lose(self, why: str) -> None:
        """Tells the loss, once."""
        raise NotImplementedError

    def _watch(self) -> None:
        """Has the renewals begin when the first is due, and the loss told when the lease is over."""
        raise NotImplementedError

    def _renew(self, seconds: Optional[float]) -> Script[bool]:
        if self._lease.is_of_the_parent:
            return False
        settings = self._settings if seconds is None else replace(self._settings, lease=seconds)
        lease, sent = self._lease, now()
        asked = lease.asks_for(settings.lease)
        why = yield from _steps.renew_now(self._request, asked, settings.confirm)
        if why is not None:
            self._lose(why)
            return False
        if seconds is not None:
            self._settings = settings
            self._renewed.confirm = settings.confirm
            lease.become(settings.lease, settings.margin_seconds)
        # A renewal of the background may come behind this one, and the server goes by the last.
        lease.renewed(sent, self._renewed.at_least(asked))
        if seconds is not None:
            # It may be lost, and its next renewal due, sooner than before.
            self._alarm.cancel()
            self._has_begun = False
            self._watch()
        return True

    def _end(self, verb: str, *more: Word) -> Script[Finished]:
        """Sends RELEASE, DONE or FAIL. The hold is renewed until the server has answered."""
        is_lost = self._lease.why_lost() is not None
        if verb == "RELEASE" and self._depth > 1:
            self._depth -= 1
            return Finished(is_ended=not is_lost, at_once=True)
        # A release of a hold that is lost is a courtesy. The result of work counts even then.
        retry_for = self._lives_for if verb == "DONE" or not is_lost else 0.0
        confirm = self._settings.confirm if verb == "DONE" else None
        script = _steps.finish(self._request.verb(verb, *more), self.key, retry_for, confirm)
        return (yield from self._finish(script))

    def _end_quietly(self, verb: str, *more: Word) -> Script[bool]:
        """Ends the hold after its block. The work is over, so a server out of reach is no error of the block.

        Returns whether the server says that the hold had ended before.
        """
        try:
            ended = yield from self._end(verb, *more)
        except Exception as error:
            if not passes(error):
                raise
            log.warning("%r could not be released, its lease will end it: %s", self.key, error)
            return False
        return ended.at_once and not ended.is_ended

    def _record(self, done: Tuple[Word, ...], failed: Callable[[Exception], Tuple[Word, ...]]) -> Script[Finished]:
        """Sends DONE. If it is refused, sends FAIL with what ``failed`` returns, and raises the refusal.

        The server's word counts here, not the clock: DONE after a lapse is accepted unless another has begun.
        """
        verb = self._request.verb
        refused = lambda refusal: verb("FAIL", *failed(refusal))  # noqa: E731
        script = _steps.record(verb("DONE", *done), refused, self.key, self._lives_for, self._settings.confirm)
        return (yield from self._finish(script))

    @property
    def _lives_for(self) -> float:
        return _steps.lives_for(self._settings.lease)

    def _finish(self, finishing: Script[Finished]) -> Script[Finished]:
        if self._lease.is_of_the_parent:
            return Finished(is_ended=False, at_once=True)
        self._is_ending = True
        try:
            return (yield from finishing)
        finally:
            self._alarm.cancel()
            self._lease.end("it was released")
            self._renewals.remove(self._renewed)

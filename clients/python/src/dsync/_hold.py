"""What the holds of threads and of tasks have in common: all but who looks at the clock, and whom a loss is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, ClassVar, Optional

from . import _steps
from ._lease import Lease, now, weakly
from ._performer import Performer, Talk
from ._protocol import Word
from ._renewals import Renewed, renewals_of
from ._retry import log, passes_for_a_hold
from ._settings import Settings
from ._steps import Grant
from .errors import HoldLost


class LostOfAHold:
    """What the events of holds have in common: they are set in the child of a fork as well, where nobody sets them."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        return self._lease.is_of_the_parent or super().is_set()  # type: ignore[misc]


class HoldBase:
    _performer: ClassVar[type[Performer]]
    #: The library's own event; set when the hold is lost.
    lost: Any

    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        self._client = client
        self._request = grant.request
        self._settings = settings
        self._lease = Lease(settings.lease, settings.margin_seconds, grant.sent, settings.max_hold)
        self._renewed = Renewed(self._request, self._lease, settings.confirm, weakly(self._lose))
        self._renewals = renewals_of(self._performer.of(client), self._renewed)
        #: What calls when the renewals have to begin, or when the lease is over.
        self._alarm: Any = None
        self._has_begun = False
        self._is_ending = False
        #: How often it has been entered by the thread or task that has it (``reentrant``).
        self._depth = 1
        self.key = grant.request.key
        #: The public number of the hold. It only grows from hold to hold: the resource can refuse an older one.
        self.fence = grant.told.fence
        #: Which attempt at the work this is, from 1; ``None`` outside work-once.
        self.attempt = grant.told.attempt
        #: The lowest number from 0 that no other hold had when it was granted; ``None`` unless asked for (``index``).
        self.index = grant.told.index

    def __del__(self) -> None:
        """Ends the renewal, and has the hold live on for who keeps nothing but ``lost`` or ``on_lost``.

        What tells the loss holds the hold weakly until here, so that an ``on_lost`` which refers to the hold does not
        have it renewed for ever. No lock is taken: garbage is collected at any moment.
        """
        self._lease.is_forgotten = True
        if self._alarm is not None and not (self._lease.has_ended or self._lease.is_of_the_parent):
            self._outlives()

    def _outlives(self) -> None:
        """Has what tells the loss keep the hold, from any thread."""
        raise NotImplementedError

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
        # A renewal can overtake the answer to the release, and finds no hold then.
        if self._is_ending or self.lost.is_set():
            return  # Also in the child of a fork, for which `lost` is set from the beginning.
        self._lease.end(why)
        self.lost.set()
        log.warning("%s", HoldLost(self.key, self.fence, why))
        # First of all the work ends.
        self._cancel_work()
        if self._settings.on_lost is not None:
            self._tell(self._settings.on_lost)

    def _cancel_work(self) -> None:
        """Ends the work of the hold, where that can be done from outside."""

    def _enter(self) -> None:
        """Called at the beginning of a block."""

    def _leave(self, error: Optional[BaseException]) -> bool:
        """Called at the end of a block. Returns whether ``error`` is nothing but the cancellation by the loss."""
        return False

    def _tell(self, on_lost: Callable[[Any], object]) -> None:
        """Has ``on_lost`` called. What it raises is logged."""
        raise NotImplementedError

    def _watch(self) -> None:
        """Has :meth:`_look` called at each of the moments that it returns, the first being that of a renewal."""
        raise NotImplementedError

    def _look(self) -> Optional[float]:
        """Has the renewals begin when the first is due, and tells the loss. Returns when to look again."""
        lease = self._lease
        why = lease.why_lost()
        if why is not None:
            self._lose(why)
            return None
        if lease.is_forgotten:
            return lease.lost_at()
        if not self._has_begun and now() >= self._renewed.due_at:
            try:
                self._renewals.begin(self._performer.of(self._client))
            except RuntimeError as error:
                # There are too many threads at the moment. The loss has to be told all the same.
                log.warning("%r cannot be renewed: %s", self.key, error)
                lease.not_renewed(error)
                return min(now() + lease.seconds / 10, lease.lost_at())
            self._has_begun = True
        return lease.lost_at() if self._has_begun else min(self._renewed.due_at, lease.lost_at())

    async def _renew(self, talk: Talk, seconds: Optional[float]) -> bool:
        if self._lease.is_of_the_parent:
            return False
        settings = self._settings if seconds is None else replace(self._settings, lease=seconds)
        lease = self._lease
        asked = lease.asks(settings.lease, settings.margin_seconds)
        # The same lease once more ends no sooner than before.
        is_anew = seconds is not None
        try:
            if is_anew:
                self._watch_anew()
            why = await _steps.renew_now(talk, self._request, asked.seconds, settings.confirm)
            if why is not None:
                self._lose(why)
                return False
            if seconds is not None:
                self._settings = settings
                self._renewed.confirm = settings.confirm
                lease.become(settings.lease, settings.margin_seconds)
            lease.renewed(asked)
        except BaseException as error:
            lease.not_renewed(error, asked)
            is_anew = True
            raise
        finally:
            if is_anew:
                self._watch_anew()
        return lease.why_lost() is None

    def _watch_anew(self) -> None:
        """Called when the hold may be lost, or its next renewal due, sooner than before."""
        self._alarm.cancel()
        self._has_begun = False
        self._watch()

    async def _end(self, talk: Talk, verb: str, *more: Word) -> bool:
        """Sends RELEASE, DONE or FAIL. The hold is renewed until the server has answered. Returns whether it counts."""
        lease, is_release = self._lease, verb == "RELEASE"
        is_lost = lease.why_lost() is not None
        if is_release and self._depth > 1:
            self._depth -= 1
            return not is_lost
        if lease.is_of_the_parent:
            return False
        # A release of a hold that is lost is a courtesy. Work that is done or has failed counts even then.
        retry_for = 0.0 if is_release and is_lost else _steps.lives_for(self._settings.lease)
        confirm = self._settings.confirm if verb == "DONE" else None
        self._is_ending = True
        try:
            counts = await _steps.finish(
                talk, self._request, verb, *more, retry_for=retry_for, confirm=confirm, lease=lease
            )
            return counts and not (is_release and is_lost)
        finally:
            self._alarm.cancel()
            lease.end("it was released")
            self._renewals.remove(self._renewed)

    async def _end_quietly(self, talk: Talk, verb: str, *more: Word, is_all: bool = False) -> bool:
        """Ends the hold after its block. The work is over, so a server out of reach is no error of the block.

        A refusal is raised if that ``is_all`` the block has to say. Returns whether the server says that the hold had
        ended before.
        """
        try:
            return not await self._end(talk, verb, *more)
        except Exception as error:
            if is_all and not passes_for_a_hold(error):
                raise
            log.warning("%r could not be released, its lease will end it: %s", self.key, error)
            return False

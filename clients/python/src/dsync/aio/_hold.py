"""A hold of an asyncio client."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Optional

from .. import _steps
from .._lease import Lease, now
from .._protocol import Word
from .._retry import log, passes
from .._settings import Settings
from .._steps import ANSWER_WITHIN, Grant
from ..errors import HoldLost
from ._talk import run


class Hold:
    """A lock, permits, a membership or a run that this process holds.

    A task renews it at each third of its lease, until it is released or lost. While a block (``async with``) is inside,
    the loss of the hold cancels the task of the block.
    """

    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        self._client = client
        self._request = grant.request
        self._settings = settings
        self._lease = Lease(settings.lease, settings.margin_seconds, grant.sent)
        self._is_ending = False
        self._inside: Optional[asyncio.Task[Any]] = None
        self._cancelled_before = 0
        self._has_cancelled = False
        self.key = grant.request.key
        #: The public number of the hold. It only grows from hold to hold: the resource can refuse an older one.
        self.fence = grant.fence
        #: Which attempt at the work this is, from 1; ``None`` outside work-once.
        self.attempt = grant.attempt
        #: Set when the hold is lost.
        self.lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._renewer = asyncio.create_task(self._renew())
        # Not a part of that task: no server that keeps it waiting can keep the loss from being told.
        self._alarm = self._loop.call_later(self._lease.left(), self._watch)

    def __repr__(self) -> str:
        return f"<Hold of {self.key!r}, fence {self.fence}, {self.left():.1f} s left>"

    def left(self) -> float:
        """Returns for how many seconds the hold is certain without another renewal; 0 when it is lost or released."""
        return self._lease.left()

    def raise_if_lost(self) -> None:
        """Raises :class:`~dsync.HoldLost` if the hold is lost. It asks this process's clock, not the server.

        A block that awaits something is cancelled anyway; this is for long stretches without ``await``.
        """
        why = self._lease.why_lost()
        if why is not None:
            self._lose(why)
            raise HoldLost(self.key, self.fence, why)

    async def renew(self) -> bool:
        """Renews the lease now. Returns whether the hold still lived.

        There is seldom a reason to: the background does it. Raises the error of the connection if the server does not
        answer.
        """
        sent = now()
        if int(await self._run(_steps.ask(self._request.renewal(), self.key, 0))):
            self._lease.renewed(sent)
            return True
        self._lose("its lease ran out, or it was revoked or removed")
        return False

    async def release(self) -> bool:
        """Ends the hold. Returns whether it still lived.

        Raises the error of the connection if the server does not answer for five seconds; the lease ends the hold then.
        """
        return await self._end("RELEASE", retry_for=self._patience()) > 0

    def _patience(self) -> float:
        """Seconds for which a release is worth being repeated: then the lease ends the hold anyway."""
        return min(ANSWER_WITHIN, self._lease.left())

    async def _end_quietly(self, verb: str, *more: Word) -> None:
        """Ends the hold after its block. The work is over, so a server out of reach is no error of the block."""
        try:
            await self._end(verb, *more, retry_for=self._patience())
        except Exception as error:
            if not passes(error):
                raise
            log.warning("%r could not be released, its lease will end it: %s", self.key, error)

    async def _end(self, verb: str, *more: Word, retry_for: float) -> int:
        """Sends RELEASE, DONE or FAIL. The hold is renewed until the server has answered."""
        self._is_ending = True
        try:
            return int(await self._run(_steps.finish(self._request.verb(verb, *more), self.key, retry_for)))
        finally:
            self._renewer.cancel()
            self._alarm.cancel()
            self._lease.end("it was released")

    async def _run(self, script: Any) -> Any:
        return await run(script, self._client, self.key, self._settings.own_connection)

    async def _renew(self) -> None:
        try:
            await self._run(_steps.renew(self._request, self._lease, self._lose))
        except Exception:
            log.exception("%r is not renewed any more", self.key)

    def _watch(self) -> None:
        why = self._lease.why_lost()
        if why is None:
            self._alarm = self._loop.call_later(self._lease.left(), self._watch)
        else:
            self._lose(why)

    def _lose(self, why: str) -> None:
        # A renewal can overtake the answer to the release, and finds no hold then.
        if self._is_ending or self.lost.is_set():
            return
        self._lease.end(why)
        self._alarm.cancel()
        self.lost.set()
        log.warning("%s", HoldLost(self.key, self.fence, why))
        if self._settings.on_lost is not None:
            self._settings.on_lost(self)
        # The task of the block hears of it at once if it asked itself.
        if self._inside is not None and self._inside is not asyncio.current_task():
            self._has_cancelled = True
            self._inside.cancel()

    def _enter(self) -> None:
        """Has the loss of the hold cancel the task that runs now."""
        self._inside = asyncio.current_task()
        if sys.version_info >= (3, 11) and self._inside is not None:
            self._cancelled_before = self._inside.cancelling()

    def _leave(self, error: Optional[BaseException]) -> bool:
        """Takes :meth:`_enter` back. Returns whether ``error`` is nothing but the cancellation by the loss."""
        task, self._inside = self._inside, None
        if not self._has_cancelled:
            return False
        is_only_ours = True
        # Python 3.11 counts cancellations, so that ours can be told from one that came from elsewhere as well.
        if sys.version_info >= (3, 11) and task is not None:
            is_only_ours = task.uncancel() <= self._cancelled_before
        return is_only_ours and isinstance(error, asyncio.CancelledError)

"""A hold of an asyncio client."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any, Callable, Literal, Optional, Set, Tuple

from .. import _steps
from .._lease import Lease, now, weakly
from .._protocol import Word
from .._retry import log, passes
from .._settings import Settings
from .._steps import Finished, Grant, Script
from ..errors import HoldLost
from ._talk import run

# The coroutines of on_lost: asyncio itself keeps no task alive.
_CALLED: Set[asyncio.Future[Any]] = set()


def _called(task: asyncio.Future[Any]) -> None:
    _CALLED.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.error("on_lost failed", exc_info=task.exception())


async def _renew(script: Script[None], client: Any, key: str) -> None:
    """The work of a task, which must not keep the hold: it would live for ever by its own renewal."""
    try:
        await run(script, client, key)
    except Exception:
        log.exception("%r is not renewed any more", key)


class _Lost(asyncio.Event):
    """Set in the child of a fork as well: nobody is there to set it."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        return self._lease.is_of_the_parent or super().is_set()

    async def wait(self) -> Literal[True]:
        return True if self._lease.is_of_the_parent else await super().wait()


class Hold:
    """A lock, permits, a membership or a run that this process holds.

    A task renews it at each third of its lease, until it is released or lost, or until nobody refers to it any more.
    While a block (``async with``) is inside, the loss of the hold cancels the task of the block.
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
        #: The lowest number from 0 that no other hold had when it was granted; ``None`` unless asked for (``index``).
        self.index = grant.index
        #: Set when the hold is lost.
        self.lost: asyncio.Event = _Lost(self._lease)
        self._loop = asyncio.get_running_loop()
        script = _steps.renew(self._request, self._lease, weakly(self._lose))
        self._renewer = asyncio.create_task(_renew(script, client, self.key))
        # Not a part of that task: no server that keeps it waiting can keep the loss from being told.
        self._alarm = self._loop.call_later(self._lease.watch_for(), weakly(self._watch))

    def __del__(self) -> None:
        self._lease.forget()

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
        if self._lease.is_of_the_parent:
            return False
        sent = now()
        why = await self._run(_steps.renew_now(self._request))
        if why is None:
            self._lease.renewed(sent)
            return True
        self._lose(why)
        return False

    async def release(self) -> bool:
        """Ends the hold. Returns whether it still lived.

        Repeats the request for the lease and five seconds more, while the server can know the hold; asks once if the
        hold is lost. Then raises the error of the connection, and the lease ends the hold.
        """
        return (await self._end("RELEASE")).is_ended

    async def _end_quietly(self, verb: str, *more: Word) -> bool:
        """Ends the hold after its block. The work is over, so a server out of reach is no error of the block.

        Returns whether the server says that the hold had ended before.
        """
        try:
            ended = await self._end(verb, *more)
        except Exception as error:
            if not passes(error):
                raise
            log.warning("%r could not be released, its lease will end it: %s", self.key, error)
            return False
        return ended.at_once and not ended.is_ended

    async def _end(self, verb: str, *more: Word) -> Finished:
        """Sends RELEASE, DONE or FAIL. The hold is renewed until the server has answered."""
        # A release of a hold that is lost is a courtesy. The result of work counts even then.
        is_worth_it = verb == "DONE" or self._lease.why_lost() is None
        retry_for = _steps.lives_for(self._settings.lease) if is_worth_it else 0.0
        return await self._finish(_steps.finish(self._request.verb(verb, *more), self.key, retry_for))

    async def _record(self, done: Tuple[Word, ...], failed: Callable[[Exception], Tuple[Word, ...]]) -> Finished:
        """Sends DONE. If it is refused, sends FAIL with what ``failed`` returns, and raises the refusal.

        The server's word counts here, not the clock: DONE after a lapse is accepted unless another has begun.
        """
        verb, lives_for = self._request.verb, _steps.lives_for(self._settings.lease)
        refused = lambda refusal: verb("FAIL", *failed(refusal))  # noqa: E731
        return await self._finish(_steps.record(verb("DONE", *done), refused, self.key, lives_for))

    async def _finish(self, finishing: Script[Finished]) -> Finished:
        if self._lease.is_of_the_parent:
            return Finished(is_ended=False, at_once=True)
        self._is_ending = True
        try:
            ended: Finished = await self._run(finishing)
            return ended
        finally:
            self._renewer.cancel()
            self._alarm.cancel()
            self._lease.end("it was released")

    async def _run(self, script: Any) -> Any:
        return await run(script, self._client, self.key)

    def _watch(self) -> None:
        why = self._lease.why_lost()
        if why is None:
            self._alarm = self._loop.call_later(self._lease.watch_for(), weakly(self._watch))
        else:
            self._lose(why)

    def _lose(self, why: str) -> None:
        # A renewal can overtake the answer to the release, and finds no hold then.
        if self._is_ending or self.lost.is_set():
            return  # Also in the child of a fork, which has neither a loop nor a task.
        self._lease.end(why)
        self._alarm.cancel()
        self.lost.set()
        log.warning("%s", HoldLost(self.key, self.fence, why))
        # First of all the work ends. The task of the block hears of it at once if it asked itself.
        if self._inside is not None and self._inside is not asyncio.current_task():
            self._has_cancelled = True
            self._inside.cancel()
        if self._settings.on_lost is not None:
            self._call(self._settings.on_lost)

    def _call(self, on_lost: Callable[[Any], object]) -> None:
        try:
            result = on_lost(self)
        except Exception:
            log.exception("on_lost of %r failed", self.key)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result)
            _CALLED.add(task)
            task.add_done_callback(_called)

    def _enter(self) -> None:
        """Has the loss of the hold cancel the task that runs now."""
        self._inside = asyncio.current_task()
        if sys.version_info >= (3, 11) and self._inside is not None:
            self._cancelled_before = self._inside.cancelling()

    def _leave(self, error: Optional[BaseException]) -> bool:
        """Takes :meth:`_enter` back. Returns whether ``error`` is nothing but the cancellation by the loss."""
        task, self._inside = self._inside, None
        # A generator's block can be left in another task than the one that was cancelled.
        if not self._has_cancelled or task is not asyncio.current_task():
            return False
        is_only_ours = True
        # Python 3.11 counts cancellations, so that ours can be told from one that came from elsewhere as well.
        if sys.version_info >= (3, 11) and task is not None:
            is_only_ours = task.uncancel() <= self._cancelled_before
        return is_only_ours and isinstance(error, asyncio.CancelledError)

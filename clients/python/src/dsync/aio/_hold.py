"""A hold of an asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import sys
from typing import Any, Callable, Literal, Optional

from .._hold import HoldBase, LostOfAHold
from .._lease import now, weakly
from .._retry import log
from .._settings import Settings
from .._steps import Grant
from ._tasks import Runs, keep


class _Lost(LostOfAHold, asyncio.Event):
    async def wait(self) -> Literal[True]:
        return True if self._lease.is_of_the_parent else await super().wait()


class Hold(Runs, HoldBase):
    """A lock, permits, a membership or a run that this process holds.

    A task renews it at each third of its lease, until it is released or lost, or until nobody refers to it any more.
    While a block (``async with``) is inside, the loss of the hold cancels the task of the block.
    """

    def __init__(self, client: Any, grant: Grant, settings: Settings) -> None:
        super().__init__(client, grant, settings)
        self._inside: Optional[asyncio.Task[Any]] = None
        self._entered_at = 0
        self._cancelled_before = 0
        self._has_cancelled = False
        #: Set when the hold is lost.
        self.lost: asyncio.Event = _Lost(self._lease)
        self._loop = asyncio.get_running_loop()
        # Not a part of a task that renews: no server that keeps it waiting can keep the loss from being told.
        self._alarm = self._loop.call_later(0, weakly(self._watch))

    async def renew(self, lease: Optional[float] = None) -> bool:
        """Renews the lease now. Returns whether the hold still lived; see :meth:`dsync.Hold.renew`."""
        return await self._run(self._renew, lease)

    async def release(self) -> bool:
        """Ends the hold. Returns whether it still lived; see :meth:`dsync.Hold.release`."""
        return await self._run(self._end, "RELEASE")

    def _watch(self) -> None:
        self._alarm.cancel()
        moment = self._look()
        if moment is not None:
            # A timer stands still while the machine is suspended.
            wait = max(0.0, min(moment - now(), self._lease.slice))
            call = self._watch if self._lease.is_forgotten else weakly(self._watch)
            self._alarm = self._loop.call_later(wait, call)

    def _outlives(self) -> None:
        # A loop that is closed tells nothing.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._watch)

    def _cancel_work(self) -> None:
        self._alarm.cancel()
        # The task of the block hears of it at once if it asked itself.
        if self._inside is not None and self._inside is not asyncio.current_task():
            self._has_cancelled = True
            self._inside.cancel()

    def _tell(self, on_lost: Callable[[Any], object]) -> None:
        try:
            result = on_lost(self)
        except Exception:
            log.exception("on_lost of %r failed", self.key)
            return
        if inspect.isawaitable(result):
            keep(asyncio.ensure_future(result), logging.ERROR, "on_lost failed")

    def _enter(self) -> None:
        """Has the loss of the hold cancel the task that runs now."""
        if self._inside is not None:
            return  # A block inside of a reentrant one.
        self._inside, self._entered_at = asyncio.current_task(), self._depth
        if sys.version_info >= (3, 11) and self._inside is not None:
            self._cancelled_before = self._inside.cancelling()

    def _leave(self, error: Optional[BaseException]) -> bool:
        """Takes :meth:`_enter` back, too."""
        if self._depth != self._entered_at:
            return False
        task, self._inside = self._inside, None
        # A generator's block can be left in another task than the one that was cancelled.
        if not self._has_cancelled or task is not asyncio.current_task():
            return False
        is_only_ours = True
        # Python 3.11 counts cancellations, so that ours can be told from one that came from elsewhere as well.
        if sys.version_info >= (3, 11) and task is not None:
            is_only_ours = task.uncancel() <= self._cancelled_before
        return is_only_ours and isinstance(error, asyncio.CancelledError)

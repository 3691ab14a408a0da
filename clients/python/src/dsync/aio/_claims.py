"""Locks, semaphores and wait groups of an asyncio client."""

from __future__ import annotations

import asyncio
import functools
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, List, Optional, Tuple, Type, TypeVar, cast

from .. import _steps
from .._blocks import exit_of_each_block
from .._claim import ClaimBase, GroupBase, in_order
from .._settings import LOCK, SEMAPHORE, Settings, lock_kind, member_kind, semaphore_kind
from .._source import AsyncClient as Client
from .._steps import Grant, Result, Script
from ..errors import Holder
from ._hold import Hold
from ._talk import run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._settings import Options

Function = TypeVar("Function", bound=Callable[..., Any])


class Claim(ClaimBase):
    """A key, and how to ask for it: ``async with claim as hold:``, or :meth:`acquire`, or as a decorator: ``@claim``.

    It can be used any number of times, also by several tasks at once; each time is a request of its own.
    """

    is_async = True
    _who = staticmethod(asyncio.current_task)

    async def acquire(self) -> Hold:
        """Waits for the key, and returns the hold. The caller releases it, and looks after ``hold.lost``."""
        hold: Optional[Hold] = self._again()
        if hold is None:
            hold = Hold(self._client, cast(Grant, await self._run(self._asking())), self._settings)
            self._note(hold)
        return hold

    async def locked(self) -> bool:
        """Returns whether anybody holds the key, or whether a semaphore has too few permits. Takes nothing."""
        return await self._run(self._is_locked())

    async def holders(self) -> List[Holder]:
        """Returns who holds the key, the oldest hold first, 1,000 at most. Takes nothing."""
        return await self._run(self._holders())

    def __call__(self, function: Function) -> Function:
        """Decorates a coroutine function: each call is a block of its own."""
        self._check_function(function)

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await function(*args, **kwargs)

        return cast(Function, wrapper)

    def __aenter__(self) -> Coroutine[Any, Any, Hold]:
        # No coroutine itself: the next look-up of an exit may come before the first step of one.
        return self._enter(self._by_hand.entering())

    async def _enter(self, enters: Callable[[Hold], None]) -> Hold:
        hold = await self.acquire()
        hold._enter()
        enters(hold)
        return hold

    @exit_of_each_block
    async def __aexit__(
        self,
        hold: Hold,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self._run(self._leaving(hold, error, hold._leave(error)))

    async def _run(self, script: Script[Result]) -> Result:
        return await run(script, self._client, self.key)


class Semaphore(Claim):
    """The claim of a semaphore."""

    async def available(self) -> Optional[int]:
        """Returns how many permits are free; ``None`` if there is no limit. Takes nothing."""
        return await self._run(self._available())


def lock(
    client: Client,
    key: str,
    *,
    shared: bool = False,
    min_hold: Optional[float] = None,
    reentrant: bool = False,
    **options: Unpack[Options],
) -> Claim:
    """Returns a lock: ``async with lock(client, "jobs:1", lease=30) as hold:``; see :func:`dsync.lock`."""
    return Claim(client, key, lock_kind(shared, min_hold, reentrant), Settings.of(options, *LOCK))


def semaphore(
    client: Client,
    key: str,
    limit: Optional[int] = None,
    *,
    permits: int = 1,
    lane: Optional[str] = None,
    lane_limit: Optional[int] = None,
    min_hold: Optional[float] = None,
    index: bool = False,
    **options: Unpack[Options],
) -> Semaphore:
    """Returns a semaphore: ``async with semaphore(client, "api", limit=5):``; see :func:`dsync.semaphore`."""
    kind = semaphore_kind(limit, permits, lane, lane_limit, min_hold, index)
    return Semaphore(client, key, kind, Settings.of(options, *SEMAPHORE))


class Group(GroupBase):
    """A wait group; see :func:`dsync.group`."""

    is_async = True

    def member(self, **options: Unpack[Options]) -> Claim:
        """Returns a membership: ``async with g.member() as hold:``; see :meth:`dsync.Group.member`."""
        return Claim(self._client, self.key, member_kind(self._limit), Settings.of(options))

    async def expect(self, jobs: int) -> int:
        """Says how many jobs the round has, before anybody waits. Returns how many are still owed."""
        return await run(self._expecting(jobs), self._client, self.key)

    async def wait(
        self, timeout: Optional[float] = None, *, retry_for: float = Settings.retry_for
    ) -> Optional[Tuple[int, int]]:
        """Waits until the round is finished. Returns its tally; see :meth:`dsync.Group.wait`."""
        return await run(_steps.wait_for_round(self.key, timeout, retry_for), self._client, self.key)


def group(client: Client, key: str, *, limit: Optional[int] = None) -> Group:
    """Returns a wait group; see :func:`dsync.group`."""
    return Group(client, key, limit)


@asynccontextmanager
async def all_of(*claims: Claim) -> AsyncIterator[Tuple[Hold, ...]]:
    """Holds several keys at once: ``async with all_of(tenant, everybody) as holds:``; see :func:`dsync.all_of`."""
    async with AsyncExitStack() as stack:
        held = {claim.key: await stack.enter_async_context(claim) for claim in in_order(claims)}
        for hold in held.values():
            # The first ones can be lost while the last one is waited for.
            hold.raise_if_lost()
        yield tuple(held[claim.key] for claim in claims)

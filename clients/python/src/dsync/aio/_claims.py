"""Locks, semaphores and wait groups of an asyncio client."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, Optional, Tuple, Type

from .. import _steps
from .._blocks import ByHand, exit_of_each_block
from .._protocol import GivenUp, Request
from .._settings import LOCK, SEMAPHORE, Kind, Settings, lock_kind, member_kind, semaphore_kind
from .._source import check_client
from .._steps import Grant
from ..errors import HoldLost, NotAcquired, WorkFailed
from ._hold import Hold
from ._talk import run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._settings import Options


class Claim:
    """A key, and how to ask for it: ``async with claim as hold:``, or :meth:`acquire`.

    It can be used any number of times, also by several tasks at once; each time is a request of its own.
    """

    def __init__(self, client: Any, key: str, kind: Kind, settings: Settings) -> None:
        check_client(client, is_async=True)
        self._client = client
        self._kind = kind
        self._settings = settings
        self._by_hand = ByHand(asyncio.current_task)
        self.key = key

    async def acquire(self) -> Hold:
        """Waits for the key, and returns the hold. The caller releases it, and looks after ``hold.lost``.

        Raises :class:`~dsync.NotAcquired` if the wait has run out.
        """
        outcome, request = await self._ask()
        if isinstance(outcome, Grant):
            return Hold(self._client, outcome, self._settings)
        raise await self._refusal(request, outcome)

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
        is_ours = hold._leave(error)
        why = hold._lease.why_lost()
        if self._kind.success != "RELEASE" and error is None:
            # The server's word counts here: an overdue member that nobody has ended yet can still be done.
            ended = await hold._end(self._kind.success)
            if not ended.is_ended:
                raise HoldLost(hold.key, hold.fence, why or "it had ended before it was done")
            return
        had_ended = await hold._end_quietly("RELEASE")
        if is_ours or ((why is not None or had_ended) and error is None):
            raise HoldLost(hold.key, hold.fence, why or _steps.NOT_RENEWED) from None

    async def _ask(self) -> Tuple[_steps.Outcome, Request]:
        request = self._kind.request(self.key, self._settings)
        return await self._run(_steps.acquire(request, self._settings.waits)), request

    async def _refusal(self, request: Request, outcome: Any) -> Exception:
        if isinstance(outcome, GivenUp):
            return WorkFailed(self.key, outcome.reason, outcome.attempts)
        state, holders = await self._run(_steps.who_holds(request, self._settings.wait == 0))
        return NotAcquired(self.key, holders, state)

    async def _run(self, script: Any) -> Any:
        return await run(script, self._client, self.key)


def lock(
    client: Any, key: str, *, shared: bool = False, min_hold: Optional[float] = None, **options: Unpack[Options]
) -> Claim:
    """Returns a lock: ``async with lock(client, "jobs:1", lease=30) as hold:``; see :func:`dsync.lock`."""
    return Claim(client, key, lock_kind(shared, min_hold), Settings.of(options, *LOCK))


def semaphore(
    client: Any,
    key: str,
    limit: Optional[int] = None,
    *,
    permits: int = 1,
    lane: Optional[str] = None,
    lane_limit: Optional[int] = None,
    min_hold: Optional[float] = None,
    index: bool = False,
    **options: Unpack[Options],
) -> Claim:
    """Returns a semaphore: ``async with semaphore(client, "api", limit=5):``; see :func:`dsync.semaphore`."""
    kind = semaphore_kind(limit, permits, lane, lane_limit, min_hold, index)
    return Claim(client, key, kind, Settings.of(options, *SEMAPHORE))


class Group:
    """A wait group; see :func:`dsync.group`."""

    def __init__(self, client: Any, key: str, limit: Optional[int]) -> None:
        check_client(client, is_async=True)
        self._client = client
        self._limit = limit
        self.key = key

    def member(self, **options: Unpack[Options]) -> Claim:
        """Returns a membership: ``async with g.member() as hold:``; see :meth:`dsync.Group.member`."""
        return Claim(self._client, self.key, member_kind(self._limit), Settings.of(options))

    async def expect(self, jobs: int) -> int:
        """Says how many jobs the round has, before anybody waits. Returns how many are still owed."""
        script = _steps.ask(["DWG.EXPECT", self.key, jobs], self.key, Settings.retry_for)
        return int(await run(script, self._client, self.key))

    async def wait(
        self, timeout: Optional[float] = None, *, retry_for: float = Settings.retry_for
    ) -> Optional[Tuple[int, int]]:
        """Waits, on a connection of its own, until the round is finished.

        Returns how many members were done and how many were lost, or ``None`` after ``timeout`` seconds.
        """
        script = _steps.wait_for_round(self.key, timeout, retry_for)
        return await run(script, self._client, self.key)


def group(client: Any, key: str, *, limit: Optional[int] = None) -> Group:
    """Returns a wait group; see :func:`dsync.group`."""
    return Group(client, key, limit)


@asynccontextmanager
async def all_of(*claims: Claim) -> AsyncIterator[Tuple[Hold, ...]]:
    """Holds several keys at once: ``async with all_of(tenant, everybody) as holds:``; see :func:`dsync.all_of`."""
    keys = [claim.key for claim in claims]
    if len(set(keys)) < len(keys):
        raise ValueError("a key that is asked for twice would wait for itself")
    async with AsyncExitStack() as stack:
        held = {
            claim.key: await stack.enter_async_context(claim) for claim in sorted(claims, key=lambda claim: claim.key)
        }
        for hold in held.values():
            # The first ones can be lost while the last one is waited for.
            hold.raise_if_lost()
        yield tuple(held[key] for key in keys)

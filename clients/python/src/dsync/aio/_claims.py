"""Locks, semaphores, wait groups and work-once keys of an asyncio client."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, AsyncIterator, Callable, Coroutine, Optional, TypeVar

from .. import _protocol, _steps
from .._blocks import Error, Kind, Trace, exit_of_each_block
from .._claim import BeginBase, BlockBase, ClaimBase, Families, GroupBase, Once, Run, in_order
from .._settings import Settings
from .._source import AsyncClient as Client
from ..errors import Holder
from ._hold import Hold
from ._tasks import Runs

Function = TypeVar("Function", bound=Callable[..., Any])
Held = TypeVar("Held")


class Block(Runs, BlockBase[Held]):
    _hold = Hold

    def __aenter__(self) -> Coroutine[Any, Any, Held]:
        # No coroutine itself: the next look-up of an exit may come before the first step of one.
        return self._enter(self._by_hand.entering())

    async def _enter(self, enters: Callable[[Held], None]) -> Held:
        held = await self._take()
        self._entered(held)
        enters(held)
        return held

    @exit_of_each_block
    async def __aexit__(self, held: Held, kind: Kind, error: Error, trace: Trace) -> None:
        await self._run(self._leaving, held, error)


class Claim(Block[Hold], ClaimBase[Hold]):
    """A key, and how to ask for it: ``async with claim as hold:``, or :meth:`acquire`, or as a decorator: ``@claim``.

    It can be used any number of times, also by several tasks at once; each time is a request of its own.
    """

    async def acquire(self) -> Hold:
        """Waits for the key, and returns the hold. The caller releases it, and looks after ``hold.lost``."""
        return await self._take()

    async def locked(self) -> bool:
        """Returns whether anybody holds the key, or whether a semaphore has too few permits. Takes nothing."""
        return self._is_locked(await self._run(self._info))

    async def holders(self) -> list[Holder]:
        """Returns who holds the key, the oldest hold first, 1,000 at most. Takes nothing."""
        return _protocol.holders(await self._run(self._info))


class Semaphore(Claim):
    """The claim of a semaphore."""

    async def available(self) -> Optional[int]:
        """Returns how many permits are free; ``None`` if there is no limit. Takes nothing."""
        return self._available(await self._run(self._info))


class Group(Runs, GroupBase[Claim]):
    """A wait group; see :func:`dsync.group`."""

    _claim = Claim

    async def expect(self, jobs: int) -> int:
        """Says how many jobs the round has, before anybody waits. Returns how many are still owed."""
        return await self._run(self._expecting, jobs)

    async def wait(
        self, timeout: Optional[float] = None, *, retry_for: float = Settings.retry_for
    ) -> Optional[tuple[int, int]]:
        """Waits until the round is finished. Returns its tally; see :meth:`dsync.Group.wait`."""
        return await self._run(_steps.wait_for_round, timeout, retry_for)


_families: Families[Client, Claim, Semaphore] = Families(Claim, Semaphore)
lock = _families.lock
semaphore = _families.semaphore


def group(client: Client, key: str, *, limit: Optional[int] = None) -> Group:
    """Returns a wait group; see :func:`dsync.group`."""
    return Group(client, key, limit)


class Begin(Block[Run[Hold]], BeginBase[Hold]):
    """A work-once key, and how to ask for it; see :meth:`Once.begin`."""


once: Once[Client, Begin] = Once(Begin)


@asynccontextmanager
async def all_of(*claims: Claim) -> AsyncIterator[tuple[Hold, ...]]:
    """Holds several keys at once: ``async with all_of(tenant, everybody) as holds:``; see :func:`dsync.all_of`."""
    async with AsyncExitStack() as stack:
        held = {claim.key: await stack.enter_async_context(claim) for claim in in_order(claims)}
        for hold in held.values():
            # The first ones can be lost while the last one is waited for.
            hold.raise_if_lost()
        yield tuple(held[claim.key] for claim in claims)

"""Locks, semaphores, wait groups and work-once keys of a synchronous client."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator, Optional, TypeVar

from .. import _protocol, _steps
from .._blocks import Error, Kind, Trace, exit_of_each_block
from .._claim import BeginBase, BlockBase, ClaimBase, Families, GroupBase, Once, Run, in_order
from .._settings import Settings
from .._source import Client
from ..errors import Holder
from ._hold import Hold
from ._threads import Runs, complete

Function = TypeVar("Function", bound=Callable[..., Any])
Held = TypeVar("Held")


class Block(Runs, BlockBase[Held]):
    _hold = Hold

    def __enter__(self) -> Held:
        enters = self._by_hand.entering()
        held = complete(self._take())
        enters(held)
        return held

    @exit_of_each_block
    def __exit__(self, held: Held, kind: Kind, error: Error, trace: Trace) -> None:
        self._run(self._leaving, held, error)


class Claim(Block[Hold], ClaimBase[Hold]):
    """A key, and how to ask for it: ``with claim as hold:``, or :meth:`acquire`, or as a decorator: ``@claim``.

    It can be used any number of times, also by several threads at once; each time is a request of its own.
    """

    def acquire(self) -> Hold:
        """Waits for the key, and returns the hold. The caller releases it.

        Raises :class:`~dsync.NotAcquired` if the wait has run out.
        """
        return complete(self._take())

    def locked(self) -> bool:
        """Returns whether anybody holds the key, or whether a semaphore has too few permits. Takes nothing."""
        return self._is_locked(self._run(self._info))

    def holders(self) -> list[Holder]:
        """Returns who holds the key, the oldest hold first, 1,000 at most. Takes nothing."""
        return _protocol.holders(self._run(self._info))


class Semaphore(Claim):
    """The claim of a semaphore."""

    def available(self) -> Optional[int]:
        """Returns how many permits are free; ``None`` if there is no limit. Takes nothing."""
        return self._available(self._run(self._info))


class Group(Runs, GroupBase[Claim]):
    """A wait group; see :func:`group`."""

    _claim = Claim

    def expect(self, jobs: int) -> int:
        """Says how many jobs the round has, before anybody waits. Returns how many are still owed."""
        return self._run(self._expecting, jobs)

    def wait(
        self, timeout: Optional[float] = None, *, retry_for: float = Settings.retry_for
    ) -> Optional[tuple[int, int]]:
        """Waits, on a connection of its own, until the round is finished.

        Returns how many members were done and how many lapsed, or ``None`` after ``timeout`` seconds.
        """
        return self._run(_steps.wait_for_round, timeout, retry_for)


_families: Families[Client, Claim, Semaphore] = Families(Claim, Semaphore)
lock = _families.lock
semaphore = _families.semaphore


def group(client: Client, key: str, *, limit: Optional[int] = None) -> Group:
    """Returns a wait group: members are added and are done, and others wait for all of them.

    ``limit`` makes it a gate: a member waits until fewer than so many live.
    """
    return Group(client, key, limit)


class Begin(Block[Run[Hold]], BeginBase[Hold]):
    """A work-once key, and how to ask for it; see :meth:`Once.begin`."""


once: Once[Client, Begin] = Once(Begin)


@contextmanager
def all_of(*claims: Claim) -> Iterator[tuple[Hold, ...]]:
    """Holds several keys at once: ``with all_of(tenant, everybody) as (first, second):``.

    They are taken in the order of their names, so that no two callers wait for each other, and released in reverse. The
    holds come in the order of the arguments.
    """
    with ExitStack() as stack:
        held = {claim.key: stack.enter_context(claim) for claim in in_order(claims)}
        for hold in held.values():
            # The first ones can be lost while the last one is waited for.
            hold.raise_if_lost()
        yield tuple(held[claim.key] for claim in claims)

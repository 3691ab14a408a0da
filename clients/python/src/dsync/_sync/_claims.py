"""Locks, semaphores and wait groups of a synchronous client."""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Tuple, Type, TypeVar, cast

from .. import _steps
from .._blocks import exit_of_each_block
from .._claim import ClaimBase, GroupBase, in_order
from .._settings import LOCK, SEMAPHORE, Kind, Settings, lock_kind, member_kind, semaphore_kind
from .._source import Client
from .._steps import Grant, Result, Script
from ..errors import Holder
from ._hold import Hold
from ._talk import run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._settings import Options

Function = TypeVar("Function", bound=Callable[..., Any])


class Claim(ClaimBase):
    """A key, and how to ask for it: ``with claim as hold:``, or :meth:`acquire`, or as a decorator: ``@claim``.

    It can be used any number of times, also by several threads at once; each time is a request of its own.
    """

    is_async = False
    _who = staticmethod(threading.current_thread)

    def __init__(self, client: Client, key: str, kind: Kind, settings: Settings) -> None:
        super().__init__(client, key, kind, settings)
        if inspect.iscoroutinefunction(settings.on_lost):
            raise TypeError("on_lost is a coroutine function, which belongs to dsync.aio")

    def acquire(self) -> Hold:
        """Waits for the key, and returns the hold. The caller releases it.

        Raises :class:`~dsync.NotAcquired` if the wait has run out.
        """
        hold: Optional[Hold] = self._again()
        if hold is None:
            hold = Hold(self._client, cast(Grant, self._run(self._asking())), self._settings)
            self._note(hold)
        return hold

    def locked(self) -> bool:
        """Returns whether anybody holds the key, or whether a semaphore has too few permits. Takes nothing."""
        return self._run(self._is_locked())

    def holders(self) -> List[Holder]:
        """Returns who holds the key, the oldest hold first, 1,000 at most. Takes nothing."""
        return self._run(self._holders())

    def __call__(self, function: Function) -> Function:
        """Decorates a function: each call is a block of its own."""
        self._check_function(function)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(Function, wrapper)

    def __enter__(self) -> Hold:
        enters = self._by_hand.entering()
        hold = self.acquire()
        enters(hold)
        return hold

    @exit_of_each_block
    def __exit__(
        self,
        hold: Hold,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._run(self._leaving(hold, error))

    def _run(self, script: Script[Result]) -> Result:
        return run(script, self._client, self.key)


class Semaphore(Claim):
    """The claim of a semaphore."""

    def available(self) -> Optional[int]:
        """Returns how many permits are free; ``None`` if there is no limit. Takes nothing."""
        return self._run(self._available())


def lock(
    client: Client,
    key: str,
    *,
    shared: bool = False,
    min_hold: Optional[float] = None,
    reentrant: bool = False,
    **options: Unpack[Options],
) -> Claim:
    """Returns a lock: ``with lock(client, "jobs:1", lease=30) as hold:``.

    ``shared`` holds it together with other shared holders; consecutive shared requests enter together. ``min_hold`` is
    for how many seconds after its grant a hold keeps the key taken even if it ends earlier. With ``reentrant`` the
    thread that holds it takes it again at once, and it ends with the outermost block.

    All four families take the options of :class:`~dsync.Settings`; see the README.
    """
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
    """Returns a semaphore: ``with semaphore(client, "api", limit=5):``.

    ``limit`` takes force with the request, so a deploy can change it; ``None`` uses the one in force. ``permits`` is
    how many of the limit one hold takes. Free permits go to the ``lane`` that has the fewest in use, and ``lane_limit``
    bounds how many it may have. With ``index``, ``hold.index`` is the lowest number from 0 that no other hold has. The
    other options are those of :func:`lock`.
    """
    kind = semaphore_kind(limit, permits, lane, lane_limit, min_hold, index)
    return Semaphore(client, key, kind, Settings.of(options, *SEMAPHORE))


class Group(GroupBase):
    """A wait group; see :func:`group`."""

    is_async = False

    def member(self, **options: Unpack[Options]) -> Claim:
        """Returns a membership: ``with g.member() as hold:``.

        A block that ends without an error is done and counts. After an error its job stays owed, where a number of jobs
        is expected.
        """
        return Claim(self._client, self.key, member_kind(self._limit), Settings.of(options))

    def expect(self, jobs: int) -> int:
        """Says how many jobs the round has, before anybody waits. Returns how many are still owed."""
        return run(self._expecting(jobs), self._client, self.key)

    def wait(
        self, timeout: Optional[float] = None, *, retry_for: float = Settings.retry_for
    ) -> Optional[Tuple[int, int]]:
        """Waits, on a connection of its own, until the round is finished.

        Returns how many members were done and how many lapsed, or ``None`` after ``timeout`` seconds.
        """
        return run(_steps.wait_for_round(self.key, timeout, retry_for), self._client, self.key)


def group(client: Client, key: str, *, limit: Optional[int] = None) -> Group:
    """Returns a wait group: members are added and are done, and others wait for all of them.

    ``limit`` makes it a gate: a member waits until fewer than so many live.
    """
    return Group(client, key, limit)


@contextmanager
def all_of(*claims: Claim) -> Iterator[Tuple[Hold, ...]]:
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

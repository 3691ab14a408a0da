"""Locks, semaphores and wait groups of a synchronous client."""

from __future__ import annotations

import inspect
import threading
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Optional, Tuple, Type

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
    """A key, and how to ask for it: ``with claim as hold:``, or :meth:`acquire`.

    It can be used any number of times, also by several threads at once; each time is a request of its own.
    """

    def __init__(self, client: Any, key: str, kind: Kind, settings: Settings) -> None:
        check_client(client, is_async=False)
        if inspect.iscoroutinefunction(settings.on_lost):
            raise TypeError("on_lost is a coroutine function, which belongs to dsync.aio")
        self._client = client
        self._kind = kind
        self._settings = settings
        self._by_hand = ByHand(threading.get_ident)
        self.key = key

    def acquire(self) -> Hold:
        """Waits for the key, and returns the hold. The caller releases it.

        Raises :class:`~dsync.NotAcquired` if the wait has run out.
        """
        outcome, request = self._ask()
        if isinstance(outcome, Grant):
            return Hold(self._client, outcome, self._settings)
        raise self._refusal(request, outcome)

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
        why = hold._lease.why_lost()
        if self._kind.success != "RELEASE" and error is None:
            # The server's word counts here: an overdue member that nobody has ended yet can still be done.
            ended = hold._end(self._kind.success)
            if not ended.is_ended:
                raise HoldLost(hold.key, hold.fence, why or "it had ended before it was done")
            return
        had_ended = hold._end_quietly("RELEASE")
        if (why is not None or had_ended) and error is None:
            # The block has gone on without its hold, and must not end as if nothing had happened.
            raise HoldLost(hold.key, hold.fence, why or _steps.NOT_RENEWED)

    def _ask(self) -> Tuple[_steps.Outcome, Request]:
        request = self._kind.request(self.key, self._settings)
        return self._run(_steps.acquire(request, self._settings.waits)), request

    def _refusal(self, request: Request, outcome: Any) -> Exception:
        if isinstance(outcome, GivenUp):
            return WorkFailed(self.key, outcome.reason, outcome.attempts)
        state, holders = self._run(_steps.who_holds(request, self._settings.wait == 0))
        return NotAcquired(self.key, holders, state)

    def _run(self, script: Any) -> Any:
        return run(script, self._client, self.key)


def lock(
    client: Any, key: str, *, shared: bool = False, min_hold: Optional[float] = None, **options: Unpack[Options]
) -> Claim:
    """Returns a lock: ``with lock(client, "jobs:1", lease=30) as hold:``.

    ``shared`` holds it together with other shared holders; consecutive shared requests enter together. ``min_hold`` is
    for how many seconds after its grant a hold keeps the key taken even if it ends earlier.

    All four families take the options ``lease``, ``wait``, ``owner``, ``margin``, ``own_connection``, ``retry_for`` and
    ``on_lost``, see the README.
    """
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
    """Returns a semaphore: ``with semaphore(client, "api", limit=5):``.

    ``limit`` takes force with the request, so a deploy can change it; ``None`` uses the one in force. ``permits`` is
    how many of the limit one hold takes. Free permits go to the ``lane`` that has the fewest in use, and ``lane_limit``
    bounds how many it may have. With ``index``, ``hold.index`` is the lowest number from 0 that no other hold has. The
    other options are those of :func:`lock`.
    """
    kind = semaphore_kind(limit, permits, lane, lane_limit, min_hold, index)
    return Claim(client, key, kind, Settings.of(options, *SEMAPHORE))


class Group:
    """A wait group; see :func:`group`."""

    def __init__(self, client: Any, key: str, limit: Optional[int]) -> None:
        check_client(client, is_async=False)
        self._client = client
        self._limit = limit
        self.key = key

    def member(self, **options: Unpack[Options]) -> Claim:
        """Returns a membership: ``with g.member() as hold:``.

        A block that ends without an error is done and counts. After an error its job stays owed, where a number of jobs
        is expected.
        """
        return Claim(self._client, self.key, member_kind(self._limit), Settings.of(options))

    def expect(self, jobs: int) -> int:
        """Says how many jobs the round has, before anybody waits. Returns how many are still owed."""
        script = _steps.ask(["DWG.EXPECT", self.key, jobs], self.key, Settings.retry_for)
        return int(run(script, self._client, self.key))

    def wait(
        self, timeout: Optional[float] = None, *, retry_for: float = Settings.retry_for
    ) -> Optional[Tuple[int, int]]:
        """Waits, on a connection of its own, until the round is finished.

        Returns how many members were done and how many were lost, or ``None`` after ``timeout`` seconds.
        """
        script = _steps.wait_for_round(self.key, timeout, retry_for)
        return run(script, self._client, self.key)


def group(client: Any, key: str, *, limit: Optional[int] = None) -> Group:
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
    keys = [claim.key for claim in claims]
    if len(set(keys)) < len(keys):
        raise ValueError("a key that is asked for twice would wait for itself")
    with ExitStack() as stack:
        held = {claim.key: stack.enter_context(claim) for claim in sorted(claims, key=lambda claim: claim.key)}
        for hold in held.values():
            # The first ones can be lost while the last one is waited for.
            hold.raise_if_lost()
        yield tuple(held[key] for key in keys)

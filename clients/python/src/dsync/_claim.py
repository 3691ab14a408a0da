"""What the claims of threads and of tasks have in common, as scripts: how they ask, look, and end what they have."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, Dict, Generic, List, MutableMapping, Optional, Tuple, TypeVar, Union
from weakref import WeakKeyDictionary, WeakValueDictionary

from . import _steps
from ._blocks import ByHand
from ._hold import HoldBase
from ._lease import OF_THE_PARENT
from ._protocol import Done, GivenUp, Words, fields, holders, text
from ._run import Run
from ._settings import Kind, Settings, Work
from ._source import check_client
from ._steps import Grant, Script
from .errors import Holder, HoldLost, NotAcquired, WorkFailed

#: How many holders are listed at most.
MOST_HOLDERS = 1_000


class ClaimBase:
    is_async: bool

    def __init__(self, client: Any, key: str, kind: Kind, settings: Settings) -> None:
        check_client(client, is_async=self.is_async)
        self._client = client
        self._kind = kind
        self._settings = settings
        self._by_hand = ByHand(self._who)
        self.key = key

    @staticmethod
    def _who() -> Any:
        """Returns the thread or task that runs now."""
        raise NotImplementedError

    def _asking(self) -> Script[Union[Grant, Done]]:
        request = self._kind.request(self.key, self._settings)
        outcome = yield from _steps.acquire(request, self._settings.waits)
        if isinstance(outcome, (Grant, Done)):
            return outcome
        if isinstance(outcome, GivenUp):
            raise WorkFailed(self.key, outcome.reason, outcome.attempts)
        state, found = yield from _steps.who_holds(request, self._settings.wait == 0)
        raise NotAcquired(self.key, found, state)

    def _leaving(self, hold: HoldBase, error: Optional[BaseException], is_cancelled: bool = False) -> Script[None]:
        """Ends the hold of a block. ``is_cancelled``: by its loss, and for no other reason."""
        why = hold._lease.why_lost()
        if self._kind.success != "RELEASE" and error is None:
            # The server's word counts here: an overdue member that nobody has ended yet can still be done.
            ended = yield from hold._end(self._kind.success)
            if not ended.is_ended:
                raise HoldLost(hold.key, hold.fence, why or "it had ended before it was done")
            return
        had_ended = yield from hold._end_quietly("RELEASE")
        if is_cancelled or ((why is not None or had_ended) and error is None):
            # The block has gone on without its hold, and must not end as if nothing had happened.
            raise HoldLost(hold.key, hold.fence, why or _steps.NOT_RENEWED) from None

    def _info(self) -> Script[Dict[str, Any]]:
        words: Words = [f"{self._kind.family.prefix}.INFO", self.key, "COUNT", MOST_HOLDERS]
        return fields((yield from _steps.ask(words, self.key, self._settings.retry_for)))

    def _is_locked(self) -> Script[bool]:
        info = yield from self._info()
        if "available" in info:
            return int(info["available"]) < self._kind.permits
        return int(info.get("holders", 0)) > 0

    def _holders(self) -> Script[List[Holder]]:
        return holders((yield from self._info()))

    def _available(self) -> Script[Optional[int]]:
        info = yield from self._info()
        return int(info["available"]) if "available" in info else self._kind.limit

    def _again(self) -> Any:
        """Returns what this thread or task holds of the key already, entered once more; ``None`` unless reentrant."""
        hold = _held_by(self._client, self._who()).get(text(self.key)) if self._kind.is_reentrant else None
        if hold is None or hold._lease.why_lost() is not None:
            return None
        hold._depth += 1
        return hold

    def _note(self, hold: HoldBase) -> None:
        if self._kind.is_reentrant:
            _held_by(self._client, self._who())[text(self.key)] = hold

    def _check_function(self, function: Callable[..., Any]) -> None:
        if inspect.iscoroutinefunction(function) is not self.is_async:
            raise TypeError(f"{function!r} belongs to {'dsync' if self.is_async else 'dsync.aio'}")


_LOCK = threading.Lock()


def _held_by(client: Any, who: Any) -> MutableMapping[str, HoldBase]:
    """Returns the reentrant holds of a thread or task. They are kept elsewhere."""
    with _LOCK:
        held: Optional[WeakKeyDictionary[Any, Any]] = getattr(client, "_dsync_held", None)
        if held is None:
            held = client._dsync_held = WeakKeyDictionary()
        found: MutableMapping[str, HoldBase] = held.setdefault(who, WeakValueDictionary())
        return found


ClaimType = TypeVar("ClaimType", bound=ClaimBase)


class BeginBase(Generic[ClaimType]):
    """A work-once key, and how to ask for it."""

    def __init__(self, claim: ClaimType, work: Work) -> None:
        self._claim = claim
        self._work = work
        self._by_hand = ByHand(claim._who)

    def _leaving(self, run: Run[Any], error: Optional[BaseException], is_cancelled: bool = False) -> Script[None]:
        hold: Optional[HoldBase] = run.hold
        if hold is None:
            return
        if error is None:
            ended = yield from hold._record(self._work.done(run.result), self._work.failed)
            if not ended.is_ended:
                why = "another attempt has begun since, and this result is not recorded"
                raise HoldLost(hold.key, hold.fence, OF_THE_PARENT if hold._lease.is_of_the_parent else why)
        elif is_cancelled:
            lost = HoldLost(hold.key, hold.fence, hold._lease.why_lost() or "its lease ran out")
            yield from hold._end_quietly("FAIL", *self._work.failed(lost))
            raise lost from None
        elif isinstance(error, Exception):
            yield from hold._end_quietly("FAIL", *self._work.failed(error))
        else:
            # The process is being stopped, or the task cancelled. That is no failure of the work, and no attempt.
            yield from hold._end_quietly("RELEASE")


class GroupBase:
    is_async: bool

    def __init__(self, client: Any, key: str, limit: Optional[int]) -> None:
        check_client(client, is_async=self.is_async)
        self._client = client
        self._limit = limit
        self.key = key

    def _expecting(self, jobs: int) -> Script[int]:
        return int((yield from _steps.ask(["DWG.EXPECT", self.key, jobs], self.key, Settings.retry_for)))


def in_order(claims: Tuple[ClaimType, ...]) -> List[ClaimType]:
    """Returns the claims in the order of their names, so that no two callers wait for each other."""
    if len({claim.key for claim in claims}) < len(claims):
        raise ValueError("a key that is asked for twice would wait for itself")
    return sorted(claims, key=lambda claim: claim.key)

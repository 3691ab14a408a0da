"""What the claims of threads and of tasks have in common: how they ask, look, and end what they have, as scripts."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, ClassVar, Generic, Mapping, Optional, TypeVar, Union
from typing import cast as _cast

from . import _protocol, _steps
from ._blocks import ByHand
from ._hold import HoldBase
from ._lease import OF_THE_PARENT
from ._performer import Performer, Talk
from ._protocol import Done, GivenUp, fields, text
from ._retry import passes_for_a_hold
from ._settings import Kind, Settings, Work, check_counts, check_texts, min_hold_words, option
from ._source import check_client
from ._steps import Grant
from .errors import HoldLost, WorkFailed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import OnceOptions, Options

ClientType = TypeVar("ClientType", contravariant=True)
Held = TypeVar("Held")
HoldType = TypeVar("HoldType", bound=HoldBase)
Function = TypeVar("Function", bound=Callable[..., Any])
StoredResult = Union[bytes, str, None]


class Run(Generic[Held]):
    """Work to do, or the result of work that is done already."""

    def __init__(self, hold: Optional[Held], attempt: int, result: StoredResult = None) -> None:
        #: The hold of the one who does the work; ``None`` if the work is done already.
        self.hold = hold
        #: Which attempt at the work this is, or was the one that did it; from 1.
        self.attempt = attempt
        self._result = result

    @property
    def is_done(self) -> bool:
        """Whether the work is done already, so that there is nothing to do."""
        return self.hold is None

    @property
    def result(self) -> StoredResult:
        """The result: bytes (or ``None``) if the work was done already, and what was set otherwise."""
        return self._result

    @result.setter
    def result(self, value: StoredResult) -> None:
        if self.is_done:
            raise AttributeError("the work is done already, and its result cannot be changed")
        self._result = value


class BlockBase(Generic[Held]):
    """A key, how to ask for it, and what a block does with it. ``Held`` is what the block gets."""

    _performer: ClassVar[type[Performer]]
    _hold: ClassVar[type[Any]]

    def __init__(self, client: Any, key: str, kind: Kind, settings: Settings) -> None:
        is_async = self._performer.is_async
        check_client(client, is_async=is_async)
        check_texts(key=key)
        if inspect.iscoroutinefunction(settings.on_lost) and not is_async:
            raise TypeError("on_lost is a coroutine function, which belongs to dsync.aio")
        self._client = client
        self._kind = kind
        self._settings = settings
        self._by_hand = ByHand(self._performer.who)
        self.key = key

    def __repr__(self) -> str:
        return f"<{self._kind.family.name} of {self.key!r}>"

    async def _asking(self, talk: Talk) -> Union[Grant, Done]:
        request = self._kind.request(self.key, self._settings)
        outcome = await _steps.acquire(talk, request, self._settings)
        if isinstance(outcome, (Grant, Done)):
            return outcome
        if isinstance(outcome, GivenUp):
            raise WorkFailed(self.key, outcome.reason, outcome.attempts)
        raise await _steps.not_acquired(talk, request, self._settings.wait == 0)

    async def _take(self) -> Held:
        return self._again() or self._begun(await self._performer.of(self._client).run(self._asking, self.key))

    @contextlib.asynccontextmanager
    async def _around(self) -> AsyncIterator[Held]:
        """A block around the call of a function."""
        run = self._performer.of(self._client).run
        held = await self._take()
        self._entered(held)
        try:
            yield held
        except BaseException as error:
            await run(self._leaving, self.key, held, error)
            raise
        await run(self._leaving, self.key, held, None)

    def _entered(self, held: Any) -> None:
        """Has the loss of the hold cancel the work of a block, where that can be done."""
        hold = held.hold if isinstance(held, Run) else held
        if hold is not None:
            hold._enter()

    def _again(self) -> Optional[Held]:
        """Returns what this thread or task holds of the key already, entered once more."""
        return None

    def _begun(self, found: Union[Grant, Done]) -> Held:
        """Returns what the block gets."""
        raise NotImplementedError

    async def _leaving(self, talk: Talk, held: Held, error: Optional[BaseException]) -> None:
        """Ends the hold of a block."""
        raise NotImplementedError


def check_function(function: Callable[..., Any], performer: type[Performer]) -> None:
    """Raises ``TypeError`` unless a block of these threads or tasks can be around each call of this function."""
    if inspect.isclass(function):
        raise TypeError(f"{function!r} is a class, and a function would take its place: decorate its methods")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} is a generator function, and would run after its block")
    if inspect.iscoroutinefunction(function) is not performer.is_async:
        raise TypeError(f"{function!r} belongs to {'dsync' if performer.is_async else 'dsync.aio'}")


def check_result(function: Callable[..., Any], performer: type[Performer], result: Any) -> None:
    """Raises ``TypeError`` if a plain function has returned a coroutine, which would run after the block."""
    if not performer.is_async and inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{function!r} returns a coroutine, and belongs to dsync.aio")


class ClaimBase(BlockBase[HoldType]):
    def __call__(self, function: Function) -> Function:
        """Decorates a function, in asyncio a coroutine function: each call is a block of its own."""
        check_function(function, self._performer)

        async def call(*args: Any, **kwargs: Any) -> Any:
            async with self._around():
                result = function(*args, **kwargs)
                result = await result if self._performer.is_async else result
                check_result(function, self._performer, result)
                return result

        return _cast(Function, functools.wraps(function)(self._performer.plain(call)))

    def _begun(self, found: Union[Grant, Done]) -> HoldType:
        hold: HoldType = self._hold(self._client, found, self._settings)
        if self._kind.is_reentrant:
            self._performer.of(self._client).held_here()[text(self.key)] = hold
        return hold

    def _again(self) -> Optional[HoldType]:
        if not self._kind.is_reentrant:
            return None
        hold: Optional[HoldType] = self._performer.of(self._client).held_here().get(text(self.key))
        if hold is None or hold._lease.is_forgotten or hold._lease.why_lost() is not None:
            return None
        hold._depth += 1
        return hold

    async def _leaving(self, talk: Talk, held: HoldType, error: Optional[BaseException]) -> None:
        is_cancelled = held._leave(error)
        why = held._lease.why_lost()
        if self._kind.family is _protocol.GROUP and error is None:
            # The server's word counts here: an overdue member that nobody has ended yet can still be done.
            if not await held._end(talk, "DONE"):
                raise HoldLost(held.key, held.fence, why or "it had ended before it was done")
            return
        had_ended = await held._end_quietly(talk, "RELEASE", is_all=error is None and why is None)
        if is_cancelled or ((why is not None or had_ended) and error is None):
            # The block has gone on without its hold, and must not end as if nothing had happened.
            raise HoldLost(held.key, held.fence, why or _steps.NOT_RENEWED) from None

    async def _info(self, talk: Talk) -> Mapping[str, Any]:
        words = self._kind.family.info(self.key, _protocol.MOST_HOLDERS)
        return fields(await _steps.ask(talk, words, self._settings.retry_for))

    def _is_locked(self, info: Mapping[str, Any]) -> bool:
        if "available" in info:
            return int(info["available"]) < self._kind.permits
        return int(info.get("holders", 0)) > 0

    def _available(self, info: Mapping[str, Any]) -> Optional[int]:
        return int(info["available"]) if "available" in info else self._kind.limit


ClaimType = TypeVar("ClaimType", bound=ClaimBase[Any])
SemaphoreType = TypeVar("SemaphoreType", bound=ClaimBase[Any])


class Families(Generic[ClientType, ClaimType, SemaphoreType]):
    """The functions that return claims, with the classes of threads or of tasks."""

    def __init__(self, claim: type[ClaimType], semaphore: type[SemaphoreType]) -> None:
        self._claim = claim
        self._semaphore = semaphore

    def lock(
        self,
        client: ClientType,
        key: str,
        *,
        shared: bool = False,
        min_hold: Optional[float] = None,
        reentrant: bool = False,
        **options: Unpack[Options],
    ) -> ClaimType:
        """Returns a lock: ``with lock(client, "jobs:1", lease=30) as hold:``, in asyncio ``async with``.

        ``shared`` holds it together with other shared holders; consecutive shared requests enter together. ``min_hold``
        is for how many seconds after its grant a hold keeps the key taken even if it ends earlier. With ``reentrant``
        the thread or task that holds it takes it again at once, and it ends with the outermost block.

        All four families take the options of :class:`~dsync.Settings`; see the README.
        """
        if shared and reentrant:
            raise ValueError("a shared lock is not reentrant")
        words = (*(("SHARED",) if shared else ()), *min_hold_words(min_hold))
        kind = Kind(_protocol.LOCK, words, is_reentrant=reentrant)
        return self._claim(client, key, kind, Settings.of(options, self.lock))

    def semaphore(
        self,
        client: ClientType,
        key: str,
        limit: Optional[int] = None,
        *,
        permits: int = 1,
        lane: Optional[str] = None,
        lane_limit: Optional[int] = None,
        min_hold: Optional[float] = None,
        index: bool = False,
        **options: Unpack[Options],
    ) -> SemaphoreType:
        """Returns a semaphore: ``with semaphore(client, "api", limit=5):``, in asyncio ``async with``.

        ``limit`` takes force with the request, so a deploy can change it; ``None`` uses the one in force. ``permits``
        is how many of the limit one hold takes. Free permits go to the ``lane`` that has the fewest in use, and
        ``lane_limit`` bounds how many it may have. With ``index``, ``hold.index`` is the lowest number from 0 that no
        other hold has. The other options are those of :func:`lock`.
        """
        check_counts(limit=limit, permits=permits, lane_limit=lane_limit)
        check_texts(lane=lane)
        if lane_limit is not None and lane is None:
            raise ValueError(f"lane_limit is the limit of a lane, and there is no lane for the {lane_limit!r}")
        if index and permits != 1:
            raise ValueError(f"index is for one permit, not {permits!r}")
        words = (*option("LIMIT", limit), "PERMITS", permits, *option("LANE", lane), *option("LANELIMIT", lane_limit))
        words = (*words, *min_hold_words(min_hold), *(("INDEX",) if index else ()))
        kind = Kind(_protocol.SEMAPHORE, words, limit=limit, permits=permits)
        return self._semaphore(client, key, kind, Settings.of(options, self.semaphore))


class GroupBase(Generic[ClaimType]):
    _claim: type[ClaimType]

    def __init__(self, client: Any, key: str, limit: Optional[int]) -> None:
        check_client(client, is_async=self._claim._performer.is_async)
        check_texts(key=key)
        check_counts(limit=limit)
        self._client = client
        self._limit = limit
        self.key = key

    def __repr__(self) -> str:
        return f"<group of {self.key!r}>"

    def member(self, **options: Unpack[Options]) -> ClaimType:
        """Returns a membership: ``with g.member() as hold:``, in asyncio ``async with``.

        A block that ends without an error is done and counts. After an error its job stays owed, where a number of jobs
        is expected.
        """
        kind = Kind(_protocol.GROUP, option("LIMIT", self._limit))
        return self._claim(self._client, self.key, kind, Settings.of(options, self.member))

    async def _expecting(self, talk: Talk, jobs: int) -> int:
        check_counts(jobs=jobs)
        return int(await _steps.ask(talk, ["DWG.EXPECT", self.key, jobs], Settings.retry_for))


class BeginBase(BlockBase[Run[HoldType]]):
    """A work-once key, and how to ask for it; see :meth:`Once.begin`."""

    def __init__(self, client: Any, key: str, settings: Settings, work: Work) -> None:
        super().__init__(client, key, Kind(_protocol.ONCE, option("MAX", work.max_attempts)), settings)
        self._work = work

    def _begun(self, found: Union[Grant, Done]) -> Run[HoldType]:
        if isinstance(found, Done):
            return Run(None, found.attempt, found.result)
        return Run(self._hold(self._client, found, self._settings), found.told.attempt or 1)

    async def _leaving(self, talk: Talk, held: Run[HoldType], error: Optional[BaseException]) -> None:
        hold = held.hold
        if hold is None:
            return
        is_cancelled = hold._leave(error)
        if error is None:
            try:
                # The server's word counts here, not the clock: it is accepted after a lapse unless another has begun.
                is_recorded = await hold._end(talk, "DONE", *self._work.done(held.result))
            except Exception as refusal:
                if not passes_for_a_hold(refusal):
                    # Without this the work would begin again after the lease only, and released it would not count.
                    with contextlib.suppress(Exception):
                        await hold._end(talk, "FAIL", *self._work.failed(refusal))
                raise
            if not is_recorded:
                why = "another attempt has begun since, and this result is not recorded"
                raise HoldLost(hold.key, hold.fence, OF_THE_PARENT if hold._lease.is_of_the_parent else why)
        elif is_cancelled:
            lost = HoldLost(hold.key, hold.fence, hold._lease.why_lost() or "its lease ran out")
            await hold._end_quietly(talk, "FAIL", *self._work.failed(lost))
            raise lost from None
        elif isinstance(error, Exception):
            await hold._end_quietly(talk, "FAIL", *self._work.failed(error))
        else:
            # The process is being stopped, or the task cancelled. That is no failure of the work, and no attempt.
            await hold._end_quietly(talk, "RELEASE")


BeginType = TypeVar("BeginType", bound=BeginBase[Any])


class Once(Generic[ClientType, BeginType]):
    """Runs work once for the whole fleet, however many ask for it.

    ``@once(client, "report:7")`` decorates a function, in asyncio a coroutine function; :meth:`begin` is the explicit
    form. Both take

    - ``max_attempts``: after so many failures :class:`~dsync.WorkFailed` is raised instead of another attempt;
    - ``keep``: seconds for which the result is kept, by default what the server says (a day);
    - ``forever``: keep it until the key is deleted, for what must never happen twice;
    - ``retry_delay``: seconds after a failure in which nobody begins again;

    and the options of :func:`dsync.lock`.
    """

    def __init__(self, begin: type[BeginType]) -> None:
        self._begin = begin

    def __call__(
        self,
        client: ClientType,
        key: Union[str, Callable[..., str]],
        *,
        dumps: Callable[[Any], Union[bytes, str]] = json.dumps,
        loads: Optional[Callable[[bytes], Any]] = None,
        until_done: bool = False,
        **options: Unpack[OnceOptions],
    ) -> Callable[[Function], Function]:
        """Decorates a function whose result everybody gets, at once or later.

        ``key`` may be a function of the arguments that returns the key. The result is stored as JSON, which reads the
        same in every language, unless ``dumps`` and ``loads`` say otherwise: ``bytes`` and ``bytes`` store it as it is.
        If the work raises an error, the attempt has failed and the next caller in line begins; with ``until_done`` that
        may be this one, until the work is done or its ``max_attempts`` are over.
        """
        work, _ = Settings.of_work(options, self.__call__)
        if until_done and work.max_attempts is None:
            raise ValueError("until_done needs max_attempts: work that always fails would go on for ever")

        def begin(*args: Any, **kwargs: Any) -> BeginType:
            return self.begin(client, key(*args, **kwargs) if callable(key) else key, **options)

        def read(key: str, result: Any) -> Any:
            try:
                # The work may have been done by begin(), without a result.
                return None if result is None else (loads or value_of)(result)
            except ValueError as error:
                raise ValueError(f"the result of {key!r} cannot be read: {error}") from error

        performer = self._begin._performer

        def decorate(function: Function) -> Function:
            check_function(function, performer)

            async def call(*args: Any, **kwargs: Any) -> Any:
                failure: Optional[Exception] = None
                while True:
                    work = begin(*args, **kwargs)
                    try:
                        async with work._around() as found:
                            if found.is_done:
                                return read(work.key, found.result)
                            try:
                                result = function(*args, **kwargs)
                                result = await result if performer.is_async else result
                            except Exception as error:
                                failure = error
                                raise
                            check_result(function, performer, result)
                            found.result = dumps(result)
                            return result
                    except WorkFailed as over:
                        raise over from failure
                    except Exception as error:
                        if error is not failure or not until_done:
                            raise

            return _cast(Function, functools.wraps(function)(performer.plain(call)))

        return decorate

    def begin(self, client: ClientType, key: str, **options: Unpack[OnceOptions]) -> BeginType:
        """Returns a context manager: ``with once.begin(client, "charge:42", forever=True) as run:``, or ``async with``.

        Unless ``run.is_done``, do the work and set ``run.result``. The end of the block records it as done, an error as
        failed. A result that cannot be recorded, because another attempt has begun since, raises
        :class:`~dsync.HoldLost`.
        """
        work, settings = Settings.of_work(options, self.begin)
        return self._begin(client, key, settings, work)


def value_of(result: bytes) -> Any:
    """Returns the value of a result: what its JSON says, else its text, which another program has stored so."""
    try:
        return json.loads(result)
    except ValueError:
        return result.decode()


def in_order(claims: tuple[ClaimType, ...]) -> list[ClaimType]:
    """Returns the claims in the order of their names, so that no two callers wait for each other, in any language.

    Keys that are no text, which the libraries take too, are sorted as what they send.
    """
    names: dict[bytes, ClaimType] = {}
    for claim in claims:
        key: Any = claim.key
        names[key if isinstance(key, bytes) else str(key).encode()] = claim
    if len(names) < len(claims):
        raise ValueError("a key that is asked for twice would wait for itself")
    return [names[name] for name in sorted(names)]

"""Work that is done once, for an asyncio client."""

from __future__ import annotations

import asyncio
import functools
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, Optional, Type, TypeVar, Union, cast

from .._blocks import ByHand, exit_of_each_block
from .._lease import OF_THE_PARENT
from .._protocol import Done
from .._run import Run
from .._settings import DECORATOR, ONCE, Settings, failure_words, result_words, run_kind
from .._steps import Grant
from ..errors import HoldLost
from ._claims import Claim
from ._hold import Hold

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._settings import Options

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


class Begin:
    """A work-once key, and how to ask for it; see :meth:`Once.begin`."""

    def __init__(
        self, claim: Claim, settings: Settings, keep: Optional[float], forever: bool, retry_delay: Optional[float]
    ) -> None:
        self._claim = claim
        self._settings = settings
        self._keep = keep
        self._forever = forever
        self._retry_delay = retry_delay
        self._by_hand = ByHand(asyncio.current_task)

    def __aenter__(self) -> Coroutine[Any, Any, Run[Hold]]:
        # No coroutine itself: the next look-up of an exit may come before the first step of one.
        return self._enter(self._by_hand.entering())

    async def _enter(self, enters: Callable[[Run[Hold]], None]) -> Run[Hold]:
        outcome, request = await self._claim._ask()
        if isinstance(outcome, Grant):
            hold = Hold(self._claim._client, outcome, self._settings)
            hold._enter()
            run = Run(hold, outcome.attempt or 1)
        elif isinstance(outcome, Done):
            run = Run.done(outcome)
        else:
            raise await self._claim._refusal(request, outcome)
        enters(run)
        return run

    @exit_of_each_block
    async def __aexit__(
        self,
        run: Run[Hold],
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        hold = run.hold
        if hold is None:
            return
        is_ours = hold._leave(error)
        if error is None:
            words = result_words(run.result, self._keep, self._forever)
            ended = await hold._record(words, lambda refusal: failure_words(refusal, self._retry_delay))
            if not ended.is_ended:
                why = "another attempt has begun since, and this result is not recorded"
                raise HoldLost(hold.key, hold.fence, OF_THE_PARENT if hold._lease.is_of_the_parent else why)
        elif is_ours:
            lost = HoldLost(hold.key, hold.fence, hold._lease.why_lost() or "its lease ran out")
            await hold._end_quietly("FAIL", *failure_words(lost, self._retry_delay))
            raise lost from None
        elif isinstance(error, Exception):
            await hold._end_quietly("FAIL", *failure_words(error, self._retry_delay))
        else:
            # The task is being cancelled. That is no failure of the work, and counts as no attempt.
            await hold._end_quietly("RELEASE")


class Once:
    """Runs work once for the whole fleet, however many ask for it; see :data:`dsync.once`.

    ``@once(client, "report:7")`` decorates a coroutine function; :meth:`begin` is the explicit form.
    """

    def __call__(
        self,
        client: Any,
        key: Union[str, Callable[..., str]],
        *,
        max_attempts: Optional[int] = None,
        keep: Optional[float] = None,
        forever: bool = False,
        retry_delay: Optional[float] = None,
        dumps: Callable[[Any], Union[bytes, str]] = json.dumps,
        loads: Callable[[bytes], Any] = json.loads,
        **options: Unpack[Options],
    ) -> Callable[[Function], Function]:
        """Decorates a coroutine function whose result everybody gets, at once or later; see :data:`dsync.once`."""
        Settings.of(options, *DECORATOR)

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                name = key(*args, **kwargs) if callable(key) else key
                async with self.begin(
                    client,
                    name,
                    max_attempts=max_attempts,
                    keep=keep,
                    forever=forever,
                    retry_delay=retry_delay,
                    **options,
                ) as run:
                    if run.is_done:
                        # The work may have been done by begin(), without a result.
                        return None if run.result is None else loads(cast(bytes, run.result))
                    result = await function(*args, **kwargs)
                    run.result = dumps(result)
                    return result

            return cast(Function, wrapper)

        return decorate

    def begin(
        self,
        client: Any,
        key: str,
        *,
        max_attempts: Optional[int] = None,
        keep: Optional[float] = None,
        forever: bool = False,
        retry_delay: Optional[float] = None,
        **options: Unpack[Options],
    ) -> Begin:
        """Returns a context manager: ``async with once.begin(client, "charge:42", forever=True) as run:``.

        See :meth:`dsync._sync._once.Once.begin`.
        """
        settings = Settings.of(options, *ONCE)
        return Begin(Claim(client, key, run_kind(max_attempts), settings), settings, keep, forever, retry_delay)


once = Once()

"""Work that is done once, for an asyncio client."""

from __future__ import annotations

import functools
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, Optional, Type, TypeVar, Union, cast

from .._blocks import exit_of_each_block
from .._claim import BeginBase
from .._protocol import Done
from .._run import Run
from .._settings import DECORATOR, ONCE, Settings, run_kind
from .._source import AsyncClient as Client
from ._claims import Claim
from ._hold import Hold

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._settings import OnceOptions

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


class Begin(BeginBase[Claim]):
    """A work-once key, and how to ask for it; see :meth:`Once.begin`."""

    def __aenter__(self) -> Coroutine[Any, Any, Run[Hold]]:
        # No coroutine itself: the next look-up of an exit may come before the first step of one.
        return self._enter(self._by_hand.entering())

    async def _enter(self, enters: Callable[[Run[Hold]], None]) -> Run[Hold]:
        claim = self._claim
        found = await claim._run(claim._asking())
        if isinstance(found, Done):
            run: Run[Hold] = Run.done(found)
        else:
            hold = Hold(claim._client, found, claim._settings)
            hold._enter()
            run = Run(hold, found.attempt or 1)
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
        is_cancelled = run.hold is not None and run.hold._leave(error)
        await self._claim._run(self._leaving(run, error, is_cancelled))


class Once:
    """Runs work once for the whole fleet, however many ask for it; see :data:`dsync.once`.

    ``@once(client, "report:7")`` decorates a coroutine function; :meth:`begin` is the explicit form.
    """

    def __call__(
        self,
        client: Client,
        key: Union[str, Callable[..., str]],
        *,
        dumps: Callable[[Any], Union[bytes, str]] = json.dumps,
        loads: Callable[[bytes], Any] = json.loads,
        **options: Unpack[OnceOptions],
    ) -> Callable[[Function], Function]:
        """Decorates a coroutine function whose result everybody gets, at once or later; see :data:`dsync.once`."""
        Settings.of_work(options, *DECORATOR)

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                name = key(*args, **kwargs) if callable(key) else key
                async with self.begin(client, name, **options) as run:
                    if run.is_done:
                        # The work may have been done by begin(), without a result.
                        return None if run.result is None else loads(cast(bytes, run.result))
                    result = await function(*args, **kwargs)
                    run.result = dumps(result)
                    return result

            return cast(Function, wrapper)

        return decorate

    def begin(self, client: Client, key: str, **options: Unpack[OnceOptions]) -> Begin:
        """Returns a context manager: ``async with once.begin(client, "charge:42") as run:``; see :data:`dsync.once`."""
        work, settings = Settings.of_work(options, *ONCE)
        return Begin(Claim(client, key, run_kind(work.max_attempts), settings), work)


once = Once()

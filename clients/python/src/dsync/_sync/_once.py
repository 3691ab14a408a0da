"""Work that is done once, for a synchronous client."""

from __future__ import annotations

import functools
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Type, TypeVar, Union, cast

from .._blocks import exit_of_each_block
from .._claim import BeginBase
from .._protocol import Done
from .._run import Run
from .._settings import DECORATOR, ONCE, Settings, run_kind
from .._source import Client
from ._claims import Claim
from ._hold import Hold

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._settings import OnceOptions

Function = TypeVar("Function", bound=Callable[..., Any])


class Begin(BeginBase[Claim]):
    """A work-once key, and how to ask for it; see :meth:`Once.begin`."""

    def __enter__(self) -> Run[Hold]:
        enters = self._by_hand.entering()
        claim = self._claim
        found = claim._run(claim._asking())
        if isinstance(found, Done):
            run: Run[Hold] = Run.done(found)
        else:
            run = Run(Hold(claim._client, found, claim._settings), found.attempt or 1)
        enters(run)
        return run

    @exit_of_each_block
    def __exit__(
        self,
        run: Run[Hold],
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._claim._run(self._leaving(run, error))


class Once:
    """Runs work once for the whole fleet, however many ask for it.

    ``@once(client, "report:7")`` decorates a function; :meth:`begin` is the explicit form. Both take

    - ``max_attempts``: after so many failures :class:`~dsync.WorkFailed` is raised instead of another attempt;
    - ``keep``: seconds for which the result is kept, by default what the server says (a day);
    - ``forever``: keep it until the key is deleted, for what must never happen twice;
    - ``retry_delay``: seconds after a failure in which nobody begins again;

    and the options of :func:`dsync.lock`.
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
        """Decorates a function whose result everybody gets, at once or later.

        ``key`` may be a function of the arguments that returns the key. The result is stored as JSON, unless ``dumps``
        and ``loads`` say otherwise. If the work raises an error, the attempt has failed and the next caller in line
        begins.
        """
        Settings.of_work(options, *DECORATOR)

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                name = key(*args, **kwargs) if callable(key) else key
                with self.begin(client, name, **options) as run:
                    if run.is_done:
                        # The work may have been done by begin(), without a result.
                        return None if run.result is None else loads(cast(bytes, run.result))
                    result = function(*args, **kwargs)
                    run.result = dumps(result)
                    return result

            return cast(Function, wrapper)

        return decorate

    def begin(self, client: Client, key: str, **options: Unpack[OnceOptions]) -> Begin:
        """Returns a context manager: ``with once.begin(client, "charge:42", forever=True) as run:``.

        Unless ``run.is_done``, do the work and set ``run.result``. The end of the block records it as done, an error as
        failed. A result that cannot be recorded, because another attempt has begun since, raises
        :class:`~dsync.HoldLost`.
        """
        work, settings = Settings.of_work(options, *ONCE)
        return Begin(Claim(client, key, run_kind(work.max_attempts), settings), work)


once = Once()

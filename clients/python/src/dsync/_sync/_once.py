"""Work that is done once, for a synchronous client."""

from __future__ import annotations

import functools
import json
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Type, TypeVar, Union, cast

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

Function = TypeVar("Function", bound=Callable[..., Any])


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
        self._by_hand = ByHand(threading.get_ident)

    def __enter__(self) -> Run[Hold]:
        enters = self._by_hand.entering()
        outcome, request = self._claim._ask()
        if isinstance(outcome, Grant):
            run = Run(Hold(self._claim._client, outcome, self._settings), outcome.attempt or 1)
        elif isinstance(outcome, Done):
            run = Run.done(outcome)
        else:
            raise self._claim._refusal(request, outcome)
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
        hold = run.hold
        if hold is None:
            return
        if error is None:
            words = result_words(run.result, self._keep, self._forever)
            ended = hold._record(words, lambda refusal: failure_words(refusal, self._retry_delay))
            if not ended.is_ended:
                why = "another attempt has begun since, and this result is not recorded"
                raise HoldLost(hold.key, hold.fence, OF_THE_PARENT if hold._lease.is_of_the_parent else why)
        elif isinstance(error, Exception):
            hold._end_quietly("FAIL", *failure_words(error, self._retry_delay))
        else:
            # The process is being stopped. That is no failure of the work, and counts as no attempt.
            hold._end_quietly("RELEASE")


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
        """Decorates a function whose result everybody gets, at once or later.

        ``key`` may be a function of the arguments that returns the key. The result is stored as JSON, unless ``dumps``
        and ``loads`` say otherwise. If the work raises an error, the attempt has failed and the next caller in line
        begins.
        """
        Settings.of(options, *DECORATOR)

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                name = key(*args, **kwargs) if callable(key) else key
                with self.begin(
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
                    result = function(*args, **kwargs)
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
        """Returns a context manager: ``with once.begin(client, "charge:42", forever=True) as run:``.

        Unless ``run.is_done``, do the work and set ``run.result``. The end of the block records it as done, an error as
        failed. A result that cannot be recorded, because another attempt has begun since, raises
        :class:`~dsync.HoldLost`.
        """
        settings = Settings.of(options, *ONCE)
        return Begin(Claim(client, key, run_kind(max_attempts), settings), settings, keep, forever, retry_delay)


once = Once()

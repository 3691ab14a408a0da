"""The options that all four families share, and what each family adds to a request."""

from __future__ import annotations

import difflib
import inspect
import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Callable, Literal, Mapping, Optional, Union

from . import _protocol
from ._confirm import ALL, Confirm
from ._lease import default_margin
from ._protocol import Family, Request, Word
from ._times import CONFIRM_AT_MOST, LEASE, RETRY_FOR

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class Options(TypedDict, total=False):
        """The keyword arguments that all four families share; :class:`Settings` says what they mean."""

        lease: float
        wait: Optional[float]
        owner: Optional[str]
        margin: Optional[float]
        own_connection: bool
        retry_for: float
        on_lost: Optional[Callable[[Any], object]]
        max_hold: Optional[float]
        replicas: Union[int, Literal["all"], None]
        within: Optional[float]
        disk: bool

    class OnceOptions(Options, total=False):
        """Those of work-once; :class:`Work` says what they mean."""

        max_attempts: Optional[int]
        keep: Optional[float]
        forever: bool
        retry_delay: Optional[float]


@dataclass(frozen=True)
class Settings:
    #: Seconds for which a hold lasts without renewal: how long the others wait if this process dies.
    lease: float = LEASE
    #: Seconds to wait at most. ``None`` waits without limit, 0 only tries.
    wait: Optional[float] = None
    #: What INFO shows to people, at most 128 bytes. By default ``user@host:pid``.
    owner: Optional[str] = None
    #: Seconds before the end of its lease at which a hold counts as lost. By default a tenth of the lease, at most 2.
    margin: Optional[float] = None
    #: Whether to wait on a connection of its own. Otherwise on none at all: a turn is announced to the client.
    own_connection: bool = True
    #: Seconds for which requests are repeated while the server cannot be reached; then its error is raised. A try takes
    #: two seconds at most, and the end of a hold is repeated for as long as the server can know it.
    retry_for: float = RETRY_FOR
    #: Called with the hold when it is lost.
    on_lost: Optional[Callable[[Any], object]] = None
    #: Seconds after its grant at which a hold is lost at the latest, whatever is renewed.
    max_hold: Optional[float] = None
    #: How many replicas have to know of a grant, a renewal or a DONE before it counts; ``"all"`` that are attached.
    replicas: Union[int, Literal["all"], None] = None
    #: Seconds to wait for the replicas at a time. By default a tenth of the lease, at most 0.5.
    within: Optional[float] = None
    #: Whether it has to be on the disks of the primary and of so many replicas.
    disk: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], function: Callable[..., Any], *more: str) -> Settings:
        """Returns the settings of a call of a function, whose message for a wrong name lists the options it has."""
        names = cls.__dataclass_fields__
        for name in options:
            if name not in names:
                own = [one for one in inspect.signature(function).parameters if one not in ("client", "key", "options")]
                known = [*more, *own, *names]
                near = difflib.get_close_matches(name, known, 1)
                meant = f", did you mean {near[0]!r}?" if near else "."
                raise TypeError(f"there is no option {name!r}{meant} The options are {', '.join(known)}.")
        return cls(**options)

    @classmethod
    def of_work(cls, options: Mapping[str, Any], function: Callable[..., Any]) -> tuple[Work, Settings]:
        """Returns what a call says of its work, and the settings."""
        names = Work.__dataclass_fields__
        work = {name: value for name, value in options.items() if name in names}
        others = {name: value for name, value in options.items() if name not in names}
        return Work(**work), cls.of(others, function, *names)

    def __post_init__(self) -> None:
        check_seconds(lease=self.lease, wait=self.wait, margin=self.margin, retry_for=self.retry_for)
        check_seconds(max_hold=self.max_hold, within=self.within)
        check_texts(owner=self.owner)
        if self.margin is not None and self.margin >= self.lease:
            raise ValueError(f"margin is less than the lease of {self.lease} s, not {self.margin!r}")
        if not (self.replicas >= 1 if type(self.replicas) is int else self.replicas in (None, ALL)):
            raise ValueError(f"replicas is a number from 1 or 'all', not {self.replicas!r}")
        if self.within is not None and self.confirm is None:
            raise ValueError(f"within is for replicas or disk, and there are none for the {self.within!r}")

    @property
    def confirm(self) -> Optional[Confirm]:
        if self.replicas is None and not self.disk:
            return None
        within = min(self.lease / 10, CONFIRM_AT_MOST) if self.within is None else self.within
        return Confirm(self.replicas or 0, within, self.disk)

    @property
    def margin_seconds(self) -> float:
        return default_margin(self.lease) if self.margin is None else self.margin


@dataclass(frozen=True)
class Kind:
    """What is asked for: a lock, permits, a membership or a run."""

    family: Family
    #: The words of the request that only this family has.
    options: tuple[Word, ...] = ()
    #: Of a semaphore.
    limit: Optional[int] = None
    permits: int = 1
    #: Whether the thread or task that holds it takes it again at once.
    is_reentrant: bool = False

    def request(self, key: str, settings: Settings) -> Request:
        owner = _protocol.default_owner() if settings.owner is None else settings.owner
        return Request(self.family, key, _protocol.new_token(), settings.lease, owner, self.options)


@dataclass(frozen=True)
class Work:
    """What only work-once has."""

    #: After so many failures :class:`~dsync.WorkFailed` is raised instead of another attempt.
    max_attempts: Optional[int] = None
    #: Seconds for which the result is kept, by default what the server says.
    keep: Optional[float] = None
    #: Whether it is kept until the key is deleted.
    forever: bool = False
    #: Seconds after a failure in which nobody begins again.
    retry_delay: Optional[float] = None

    def __post_init__(self) -> None:
        check_seconds(keep=self.keep, retry_delay=self.retry_delay)
        check_counts(max_attempts=self.max_attempts)
        if self.forever and self.keep is not None:
            raise ValueError(f"a result that is kept forever is not kept for {self.keep!r} s")

    def done(self, result: Any) -> tuple[Word, ...]:
        """Returns what DONCE.DONE says after the token."""
        words: tuple[Word, ...] = () if result is None else ("RESULT", result)
        if self.forever:
            return (*words, "PERSIST")
        return (*words, *option("PX", None if self.keep is None else _protocol.milliseconds(self.keep)))

    def failed(self, error: BaseException) -> tuple[Word, ...]:
        """Returns what DONCE.FAIL says after the token."""
        delay = None if self.retry_delay is None else round(self.retry_delay * 1_000)
        try:
            said = str(error)
        except Exception as trouble:
            said = f"its text cannot be made: {type(trouble).__name__}"
        # What cannot be encoded, as in names of files, is escaped; a sign that is cut at the end is left out.
        reason = f"{type(error).__name__}: {said}".encode(errors="backslashreplace")[:1_000].decode(errors="ignore")
        return ("REASON", reason.encode(), *option("DELAY", delay))


# The bounds of PROTOCOL.md, in seconds, items and bytes. A server may allow less of a lease, never more.
_DAY = 86_400
_SECONDS_AT_MOST = {"lease": 30 * _DAY, "min_hold": 30 * _DAY, "retry_delay": 30 * _DAY, "keep": 3_650 * _DAY}
_MAY_BE_0 = ("wait", "margin", "retry_for", "retry_delay")
_COUNT_AT_MOST = 1_000_000
_BYTES = {"owner": (0, 128), "lane": (1, 128), "key": (1, 512 << 20)}
_REQUIRED = ("lease", "retry_for", "permits", "jobs", "key")


def check_seconds(**options: Any) -> None:
    """Raises ``ValueError`` where the value of an option is no duration, or none that a server takes."""
    for name, value in options.items():
        most = _SECONDS_AT_MOST.get(name, math.inf)
        is_right = isinstance(value, Real) and 0 <= float(value) <= most and bool(value or name in _MAY_BE_0)
        if not (is_right or _is_left_out(name, value)):
            above = "" if name in _MAY_BE_0 else " above 0"
            up_to = "" if most == math.inf else f" up to {most} ({most // _DAY} days)"
            raise _wrong(name, value, f"a number of seconds{above}{up_to}")


def check_counts(**options: Any) -> None:
    """Raises ``ValueError`` where the value of an option is no number of permits, attempts, members or jobs."""
    for name, value in options.items():
        is_right = type(value) is int and 1 <= value <= _COUNT_AT_MOST
        if not (is_right or _is_left_out(name, value)):
            raise _wrong(name, value, f"a whole number from 1 to {_COUNT_AT_MOST}")


def check_texts(**options: Any) -> None:
    """Raises ``ValueError`` where a text is too long or too short for the server."""
    for name, value in options.items():
        least, most = _BYTES[name]
        size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else least
        if not (least <= size <= most if value is not None else _is_left_out(name, value)):
            raise _wrong(name, value, f"a text of {least} to {most} bytes")


def _is_left_out(name: str, value: Any) -> bool:
    return value is None and name not in _REQUIRED


def _wrong(name: str, value: Any, what: str) -> ValueError:
    return ValueError(f"{name} is {'' if name in _REQUIRED else 'None or '}{what}, not {value!r}")


def option(name: str, value: Optional[Word]) -> tuple[Word, ...]:
    """Returns the words of an option, none if it is not given."""
    return () if value is None else (name, value)


def min_hold_words(seconds: Optional[float]) -> tuple[Word, ...]:
    check_seconds(min_hold=seconds)
    # Rounded up: a place rests no shorter than it was asked for.
    return option("MINHOLD", None if seconds is None else math.ceil(round(seconds * 1_000, 3)))

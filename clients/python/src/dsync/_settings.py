"""The options that all four families share, and what each family adds to a request."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Tuple

from . import _protocol
from ._lease import default_margin
from ._protocol import Family, Request, Word
from ._steps import Waits

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


#: The options that only locks, only semaphores and only work-once have, and those of the latter's decorator besides.
LOCK = ("shared", "min_hold")
SEMAPHORE = ("limit", "permits", "lane", "lane_limit", "min_hold", "index")
ONCE = ("max_attempts", "keep", "forever", "retry_delay")
DECORATOR = (*ONCE, "dumps", "loads")


@dataclass(frozen=True)
class Settings:
    #: Seconds for which a hold lasts without renewal: how long the others wait if this process dies.
    lease: float = 30.0
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
    retry_for: float = 30.0
    #: Called with the hold when it is lost.
    on_lost: Optional[Callable[[Any], object]] = None

    @classmethod
    def of(cls, options: Mapping[str, Any], *own: str) -> Settings:
        """Returns the settings of a call. ``own`` are the options that only its family has, for the message."""
        known = [*own, *(field.name for field in dataclasses.fields(cls))]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                meant = f", did you mean {near[0]!r}?" if near else "."
                raise TypeError(f"there is no option {name!r}{meant} The options are {', '.join(known)}.")
        return cls(**options)

    def __post_init__(self) -> None:
        if not self.lease > 0:
            raise ValueError(f"lease is a number of seconds above 0, not {self.lease!r}")
        if self.wait is not None and not self.wait >= 0:
            raise ValueError(f"wait is None or a number of seconds, not {self.wait!r}")
        if self.margin is not None and not 0 <= self.margin < self.lease:
            raise ValueError(f"margin is at least 0 and less than the lease of {self.lease} s, not {self.margin!r}")

    @property
    def margin_seconds(self) -> float:
        return default_margin(self.lease) if self.margin is None else self.margin

    @property
    def waits(self) -> Waits:
        return Waits(self.wait, self.own_connection, self.retry_for)


@dataclass(frozen=True)
class Kind:
    """What is asked for: a lock, permits, a membership or a run."""

    family: Family
    #: The words of the request that only this family has.
    options: Tuple[Word, ...] = ()
    #: The command that ends the hold when its block has ended without an error.
    success: str = "RELEASE"

    def request(self, key: str, settings: Settings) -> Request:
        owner = _protocol.default_owner() if settings.owner is None else settings.owner
        return Request(self.family, key, _protocol.new_token(), settings.lease, owner, self.options)


def lock_kind(shared: bool, min_hold: Optional[float]) -> Kind:
    return Kind(_protocol.LOCK, (*(("SHARED",) if shared else ()), *_min_hold_words(min_hold)))


def semaphore_kind(
    limit: Optional[int],
    permits: int,
    lane: Optional[str],
    lane_limit: Optional[int],
    min_hold: Optional[float],
    index: bool,
) -> Kind:
    if lane_limit is not None and lane is None:
        raise ValueError(f"lane_limit is the limit of a lane, and there is no lane for the {lane_limit!r}")
    if index and permits != 1:
        raise ValueError(f"index is for one permit, not {permits!r}")
    words = (*_option("LIMIT", limit), "PERMITS", permits, *_option("LANE", lane), *_option("LANELIMIT", lane_limit))
    return Kind(_protocol.SEMAPHORE, (*words, *_min_hold_words(min_hold), *(("INDEX",) if index else ())))


def member_kind(limit: Optional[int]) -> Kind:
    return Kind(_protocol.GROUP, _option("LIMIT", limit), "DONE")


def run_kind(max_attempts: Optional[int]) -> Kind:
    return Kind(_protocol.ONCE, _option("MAX", max_attempts))


def _option(name: str, value: Optional[Word]) -> Tuple[Word, ...]:
    return () if value is None else (name, value)


def _min_hold_words(seconds: Optional[float]) -> Tuple[Word, ...]:
    if seconds is not None and not seconds > 0:
        raise ValueError(f"min_hold is None or a number of seconds above 0, not {seconds!r}")
    # Rounded up: a place rests no shorter than it was asked for.
    return _option("MINHOLD", None if seconds is None else math.ceil(round(seconds * 1_000, 3)))


def result_words(result: Any, keep: Optional[float], forever: bool) -> Tuple[Word, ...]:
    """Returns what DONCE.DONE says after the token."""
    words: Tuple[Word, ...] = () if result is None else ("RESULT", result)
    if forever:
        return (*words, "PERSIST")
    return words if keep is None else (*words, "PX", _protocol.milliseconds(keep))


def failure_words(error: BaseException, retry_delay: Optional[float]) -> Tuple[Word, ...]:
    """Returns what DONCE.FAIL says after the token."""
    words: Tuple[Word, ...] = ("REASON", f"{type(error).__name__}: {error}"[:1_000])
    return words if retry_delay is None else (*words, "DELAY", round(retry_delay * 1_000))

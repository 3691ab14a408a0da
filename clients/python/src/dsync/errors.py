"""The errors of this package.

Errors of the connection and of the server (``redis.ConnectionError``, ``redis.ResponseError`` and the like) are those
of the client library. Those of the connection name the server's address and the key.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence


def _printable(text: str) -> str:
    """Returns a text of another client as it may stand in a log or on a terminal: without control characters."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class Holder(NamedTuple):
    """Someone who holds a key, as INFO shows it."""

    fence: int
    #: The text that the holder gave as ``owner``; ``None`` if it gave none.
    owner: Optional[str]
    #: Seconds.
    lease_left: float
    #: Seconds.
    held_for: float
    #: Seconds for which the hold, which has ended, still keeps its place taken (``min_hold``); ``None`` while it lives.
    resting: Optional[float] = None

    def __str__(self) -> str:
        owner = _printable(self.owner or "") or "a client that gave no owner"
        if self.resting is not None:
            return f"{owner} (fence {self.fence}, ended, rests for another {self.resting:.1f} s)"
        return f"{owner} (fence {self.fence}, for {self.held_for:.1f} s, {self.lease_left:.1f} s of lease left)"


class DsyncError(Exception):
    """The base of all errors of this package. They can be pickled: each is made of its arguments."""


class NotAcquired(DsyncError):
    """The wait ran out, or a try was refused.

    ``holders`` are the first few that held the key when it was looked up just afterwards. It is empty if nobody held it
    then, for example because the key is paused or others wait, or if the server did not answer.
    """

    def __init__(self, key: str, holders: Sequence[Holder] = (), state: Optional[str] = None) -> None:
        self.key = key
        self.holders = tuple(holders)
        #: The ``state`` of INFO, such as ``exclusive``, ``full``, ``running``, ``delayed`` or ``paused``.
        self.state = state
        super().__init__(key, self.holders, state)

    def __str__(self) -> str:
        what = f"is held by {', '.join(map(str, self.holders))}" if self.holders else "was not granted"
        return f"{self.key!r} {what}" + (f", and is {self.state}" if self.state in ("paused", "delayed") else "")


class HoldLost(DsyncError):
    """The hold has ended, or may have ended: nothing proves any more that others are kept out."""

    def __init__(self, key: str, fence: int, why: str) -> None:
        self.key = key
        self.fence = fence
        self.why = why
        super().__init__(key, fence, why)

    def __str__(self) -> str:
        return f"the hold of {self.key!r} with fence {self.fence} is lost: {self.why}"


class NotConfirmed(DsyncError):
    """Fewer replicas than were wanted know of a grant, a renewal or a DONE.

    A grant was withdrawn. A DONE is recorded all the same, but a server that takes over may not know it.
    """

    def __init__(self, key: str, have: int, wanted: int) -> None:
        self.key = key
        self.have = have
        self.wanted = wanted
        super().__init__(key, have, wanted)

    def __str__(self) -> str:
        return f"{self.key!r} is confirmed by {self.have} of {self.wanted} replicas"


class WorkFailed(DsyncError):
    """The work is given up: ``max_attempts`` attempts have failed."""

    def __init__(self, key: str, reason: str, attempts: int) -> None:
        self.key = key
        #: The reason of the last failure: ``lapsed`` or ``revoked``, or what the worker reported.
        self.reason = reason
        self.attempts = attempts
        super().__init__(key, reason, attempts)

    def __str__(self) -> str:
        after = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{self.key!r} is given up after {after}; the last failure: {_printable(self.reason)}"

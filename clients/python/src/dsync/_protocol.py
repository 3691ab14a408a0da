"""How requests are spelled and how replies are read. No I/O."""

from __future__ import annotations

import functools
import getpass
import os
import socket
import sys
import uuid
from dataclasses import dataclass, replace
from typing import Any, Mapping, NamedTuple, Optional, Union

from .errors import Holder

Word = Union[str, bytes, int]
Words = list[Word]

#: How many holders an error names, and how many are listed at most.
HOLDERS_TOLD, MOST_HOLDERS = 3, 1_000
#: Bytes of an owner that the server takes at most.
LONGEST_OWNER = 128


@dataclass(frozen=True)
class Family:
    """What differs between the four families of commands."""

    #: For people.
    name: str
    prefix: str
    #: The command that asks for a hold.
    ask: str

    def words(self, verb: str, key: str, *more: Word) -> Words:
        return [f"{self.prefix}.{verb}", key, *more]

    def info(self, key: str, holders: int) -> Words:
        return self.words("INFO", key, "COUNT", holders)


LOCK = Family("lock", "DLOCK", "ACQUIRE")
SEMAPHORE = Family("semaphore", "DSEM", "ACQUIRE")
GROUP = Family("group", "DWG", "ADD")
ONCE = Family("once", "DONCE", "BEGIN")


@dataclass(frozen=True)
class Granted:
    fence: int
    #: Which attempt at the work this is; ``None`` outside work-once.
    attempt: Optional[int] = None
    #: The index of the hold; ``None`` if it was not asked for.
    index: Optional[int] = None


class Waiting(NamedTuple):
    #: Where the server announces the turn.
    channel: bytes


class Done(NamedTuple):
    result: Optional[bytes]
    attempt: int


class GivenUp(NamedTuple):
    reason: str
    attempts: int


Answer = Union[Granted, Waiting, Done, GivenUp, None]


@dataclass(frozen=True)
class Request:
    """ACQUIRE, ADD or BEGIN. Its token makes it safe to send it any number of times."""

    family: Family
    key: str
    token: Union[str, bytes]
    #: Seconds.
    lease: float
    owner: Optional[str]
    #: LIMIT, MAX, SHARED, MINHOLD and so on, as the family has them.
    options: tuple[Word, ...] = ()

    def words(self, *waiting: Word) -> Words:
        """Returns the request, with BLOCK or QUEUE if it is to wait."""
        owner = ("OWNER", self.owner) if self.owner else ()
        lease = ("PX", milliseconds(self.lease))
        words = (*self.options, *lease, "TOKEN", self.token, *owner, *waiting)
        return self.family.words(self.family.ask, self.key, *words)

    def verb(self, verb: str, *more: Word) -> Words:
        """Returns RELEASE, DONE or another command for the hold of this request."""
        return self.family.words(verb, self.key, self.token, *more)

    def renewal(self, lease: float) -> Words:
        return self.verb("RENEW", "PX", milliseconds(lease))

    def afresh(self) -> Request:
        """Returns the same request with a token of its own: a token is never used for a second hold."""
        return replace(self, token=new_token())


class Token(bytes):
    """The token of a request. Who has it can end the hold, so no text shows it."""

    def __repr__(self) -> str:
        return "<token>"


def new_token() -> Token:
    return Token(str(uuid.uuid4()).encode())


def default_owner() -> str:
    """Returns ``user@host:pid``, for the people who read INFO."""
    return _owner_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _owner_of(pid: int) -> str:
    """Returns that of this process, which reads files. A long name of a host is cut at its end."""
    user, process = f"{_user()}@", f":{pid}"
    room = LONGEST_OWNER - len((user + process).encode())
    return user + socket.gethostname().encode()[: max(0, room)].decode(errors="ignore") + process


def _user() -> str:
    """Returns the login name of the effective user, or its number if it has none."""
    if sys.platform == "win32":
        return getpass.getuser()
    import pwd

    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1_000))


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def answer(reply: Any) -> Answer:
    """Reads the reply to ACQUIRE, ADD or BEGIN. ``None``: not granted, or a wait ran out."""
    if reply is None:
        return None
    if len(reply) == 2:
        return Granted(int(reply[1]))
    kind = text(reply[0])
    if kind == "WAITING":
        return Waiting(reply[2])
    if kind == "RUN":
        return Granted(int(reply[2]), int(reply[3]))
    if kind == "DONE":
        return Done(reply[1], int(reply[2]))
    if kind == "FAILED":
        return GivenUp(text(reply[1]), int(reply[2]))
    # The first is the token, which is random where an index is asked for.
    return Granted(int(reply[1]), index=int(reply[2]))


def holders(info: Mapping[str, Any]) -> list[Holder]:
    """Reads the first holders out of INFO's reply."""
    return [_holder(fields(row)) for row in info.get("first-holders") or []]


def _holder(row: Mapping[str, Any]) -> Holder:
    owner, resting = row.get("owner"), row.get("resting-ms")
    return Holder(
        fence=int(row["fence"]),
        owner=None if owner is None else text(owner),
        lease_left=int(row["lease-left-ms"]) / 1_000,
        held_for=int(row["held-ms"]) / 1_000,
        resting=None if resting is None else int(resting) / 1_000,
    )


def fields(reply: Any) -> dict[str, Any]:
    """Reads a map, which RESP2 sends as a flat array."""
    if reply is None:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {text(name): value for name, value in pairs}

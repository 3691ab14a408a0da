"""Performs scripts without a server: the clock and the replies are the test's."""

import contextlib
from typing import Any, Callable, Coroutine, Iterator, Union

import pytest

from dsync import _lease, _renewals, _retry, _steps
from dsync._confirm import Part
from dsync._protocol import LOCK, Request, Words
from dsync._sync._threads import complete

REQUEST = Request(LOCK, "k", "t", lease=9.0, owner=None)
QUEUED = [b"WAITING", 1, b"dsync:{k}:1"]
GRANTED = [b"t", 7]
GONE = ConnectionError("gone")

#: What the server does with a step: a reply, an error, and how many seconds it takes.
Reply = tuple[Union[Any, BaseException], float]


class Stopped(BaseException):
    """The time of the story is over."""


#: A function of the package that wants something to talk to.
Script = Callable[["Story"], Coroutine[Any, Any, Any]]


def script(function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Script:
    """Returns the function with these arguments."""
    return lambda talk: function(talk, *arguments)


class Story:
    """What scripts talk to: each question takes the next reply, and only the test's clock moves."""

    key = "k"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 1_000.0
        self.said: list[str] = []
        self._replies: Iterator[Any] = iter(())
        self._stops_at = 0.0
        for module in (_lease, _retry, _renewals, _steps):
            monkeypatch.setattr(module, "now", lambda: self.time)

    def run(self, script: Script, *replies: Union[Any, BaseException, Reply], stops_at: float = 9_999) -> Any:
        self._replies, self._stops_at = iter(replies), stops_at
        with contextlib.suppress(Stopped):
            return complete(script(self))

    def _next(self) -> Any:
        reply, seconds = next(self._replies), 0.0
        if isinstance(reply, tuple):
            reply, seconds = reply
        self.time += seconds
        return reply

    async def ask(self, words: Words, *_: Any, **__: Any) -> Any:
        self.said.append(" ".join(map(str, words)))
        reply = self._next()
        if isinstance(reply, BaseException):
            raise reply
        return reply

    block = ask

    async def ask_last(self, part: Part, within: float) -> Any:
        """A reply to all of the commands, or a list with one to each."""
        self.said.append(" + ".join(" ".join(map(str, words)) for words in part.commands))
        reply = self._next()
        part.hears(reply if isinstance(reply, list) else [reply] * len(part.commands))
        if isinstance(part.replies[-1], BaseException):
            raise part.replies[-1]
        return part.replies[-1]

    async def ask_all(self, requests: list[tuple[str, Part]], within: float) -> list[Any]:
        if self.time >= self._stops_at:
            raise Stopped
        self.said.append(" + ".join(" ".join(map(str, part.commands[0])) for _, part in requests))
        reply = self._next()
        return reply if isinstance(reply, list) else [reply] * len(requests)

    async def pause(self, seconds: float, changed: Any = None) -> None:
        self.time += seconds

    async def turn(self, seconds: float) -> None:
        self.said.append(f"turn {seconds:g}")
        self.time += seconds

    async def watch(self, channel: bytes) -> None:
        self.said.append(f"watch {channel.decode()}")

    def verbs(self) -> list[str]:
        """Returns what was said, without what is the same each time."""
        return [line.replace(" PX 9000 TOKEN t", "").replace("DLOCK.", "").replace(" k", "") for line in self.said]

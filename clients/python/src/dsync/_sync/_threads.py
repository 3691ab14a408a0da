"""How threads wait and ask. No coroutine here suspends: it blocks its thread."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any, Awaitable, Callable, ClassVar, Coroutine, Optional

from .._confirm import Part
from .._line import NOTHING, Line
from .._mutex import Event as _Event
from .._mutex import taking
from .._performer import Performer, Result
from .._retry import is_reply
from .._source import Source

#: How many connections without work are kept for each server.
KEPT_IDLE = 4


def complete(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a thread has nobody to wait for it")


class Event(_Event):
    async def within(self, seconds: float) -> bool:
        return self.wait(seconds)


class _NoBound:
    """The sockets have time-outs, and a reply is waited for until its deadline."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class ThreadLine(Line):
    def __init__(self, source: Source, within: float) -> None:
        super().__init__(source, within)
        self._sending = threading.RLock()
        #: Whether something may have been read already behind the last reply.
        self._is_ahead = False
        #: What waits for the socket, and that.
        self._poll: Any = None
        self._polled: Any = None

    def _time_outs(self, within: float) -> dict[str, Optional[float]]:
        connect_within = min(within, self.source.settings["socket_connect_timeout"])
        return {"socket_timeout": within, "socket_connect_timeout": connect_within}

    def in_time(self, within: float) -> _NoBound:
        return _NoBound()

    async def send(self, *commands: Any) -> None:
        with taking(self._sending):
            await super().send(*commands)

    async def receive(self, within: float) -> Any:
        try:
            # Not in the library, which takes each TimeoutError for its own, also one of the program's signal handler.
            self._is_ahead = self._is_ahead and self._connection.can_read(timeout=0)
            if not (self._is_ahead or self._has_something(within)):
                return NOTHING
            self._is_ahead = True
            return self._connection.read_response()
        except BaseException as error:
            if not is_reply(error):
                await self.close()
            raise

    def _has_something(self, within: float) -> bool:
        """Waits for the socket, without the library's change of its time-outs."""
        socket = self._connection._sock
        if not hasattr(select, "poll"):
            return bool(select.select([socket], [], [], within)[0])
        if self._polled is not socket:
            self._poll, self._polled = select.poll(), socket
            self._poll.register(socket, select.POLLIN)
        return bool(self._poll.poll(within * 1_000))

    def is_fresh(self) -> bool:
        # Of a request's connection all replies have been read.
        self._is_ahead = False
        try:
            # TLS has messages of its own, which are none of the server's.
            return not self._has_something(0) or not self._connection.can_read(timeout=0)
        except Exception:
            return False

    async def _disconnect(self) -> None:
        self._connection.disconnect()


class Threads(Performer):
    """Keeps the connections that have no work at the moment."""

    is_async = False
    event = Event
    line = ThreadLine
    where = staticmethod(os.getpid)
    who = staticmethod(threading.current_thread)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._idle: dict[str, list[Line]] = {}

    @staticmethod
    async def sleep(seconds: float, /) -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    @staticmethod
    def start(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        threading.Thread(target=lambda: complete(work()), name=name, daemon=True).start()
        return lambda: None

    @staticmethod
    def plain(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return lambda *args, **kwargs: complete(function(*args, **kwargs))

    async def send(self, source: Source, parts: list[Part], within: float) -> None:
        line = await self._borrow(source, within)
        try:
            await line.ask(parts, within)
        except Exception:
            # Those without work may be as dead, and each would be waited for.
            with taking(self.lock):
                idle = self._idle.pop(source.name, [])
            for each in idle:
                await each.close()
            raise
        with taking(self.lock):
            idle = self._idle.setdefault(source.name, [])
            if len(idle) < KEPT_IDLE:
                idle.append(line)
                return
        await line.close()

    async def _borrow(self, source: Source, within: float) -> Line:
        while True:
            with taking(self.lock):
                idle = self._idle.get(source.name)
                line = idle.pop() if idle else None
            if line is None:
                return self.line(source, within)
            if line.is_fresh():
                return line
            await line.close()


class Runs:
    """Runs scripts for a key with its client."""

    _performer: ClassVar[type[Performer]] = Threads
    _client: Any
    key: Any

    def _run(self, script: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        return complete(self._performer.of(self._client).run(script, self.key, *arguments))

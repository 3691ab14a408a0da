"""How tasks wait and ask."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
import sys
from typing import Any, AsyncGenerator, AsyncIterator, Awaitable, Callable, ClassVar, Coroutine, Optional

from .._confirm import Part, patience
from .._lease import now
from .._line import Line
from .._performer import Performer, Result
from .._retry import concerns_the_connection, is_reply, is_unsent, log, note
from .._source import Source
from .._times import ANSWER_WITHIN

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout


class Event(asyncio.Event):
    async def within(self, seconds: float) -> bool:
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                return await self.wait()
        return False


class TaskLine(Line):
    """Its time-outs are those of each call. Who stops waiting closes it."""

    def _time_outs(self, within: float) -> dict[str, Optional[float]]:
        return {"socket_timeout": None}

    @contextlib.asynccontextmanager
    async def in_time(self, within: float) -> AsyncIterator[None]:
        try:
            async with timeout(within):
                yield
        except asyncio.TimeoutError:
            raise self.source.no_answer(within) from None

    async def receive(self, within: float) -> Any:
        return await self._connection.read_response()

    def is_fresh(self) -> bool:
        """Not by ``can_read_destructive()`` of the libraries, which can swallow a cancellation before Python 3.11."""
        reader: Optional[asyncio.StreamReader] = self._connection._reader
        return not self._is_connected or not (reader is None or reader.at_eof() or reader.exception() is not None)

    async def _disconnect(self) -> None:
        await self._connection.disconnect(nowait=True)


#: Parts that are asked for together, for how many seconds, and what their caller waits for.
_Asked = tuple[list[Part], float, "asyncio.Future[None]"]


class Shared:
    """One connection for the requests of all tasks. What is asked while another answer is out is then sent together."""

    def __init__(self, source: Source) -> None:
        self._line = TaskLine(source, ANSWER_WITHIN)
        self._asked: list[_Asked] = []
        #: What is sent, and not answered yet.
        self._out: list[_Asked] = []
        self._working: Optional[asyncio.Task[None]] = None
        self.is_over = False

    async def ask(self, parts: list[Part], within: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((parts, within, over))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        confirms = [part.confirm for part in parts if part.confirm is not None]
        again = max((confirm.until - now() for confirm in confirms), default=0.0)
        try:
            # The WAIT before this one has its time, too.
            async with timeout(within + 2 * patience(confirms) + max(0.0, again)):
                await over
        except asyncio.TimeoutError:
            if not confirms:
                await self.end(ConnectionError("the server did not answer another request"))
            raise self._line.source.no_answer(within) from None

    async def _work(self) -> None:
        try:
            while self._asked:
                self._out, self._asked = [each for each in self._asked if not each[2].done()], []
                if not self._line.is_fresh():
                    await self._line.close()
                    self._line = TaskLine(self._line.source, ANSWER_WITHIN)
                open_ = [part for parts, _, _ in self._out for part in parts if part.is_open]
                if open_:
                    await self._line.commit(open_, max(within for _, within, _ in self._out))
                for each in self._out:
                    if any(part.is_open for part in each[0]):
                        self._asked.append(each)
                    elif not each[2].done():
                        each[2].set_result(None)
                self._out = []
            self._working = None
        except BaseException as error:
            await self.end(error)
            if not isinstance(error, Exception):
                raise

    async def end(self, why: BaseException) -> None:
        """Closes the connection, and tells all that wait for a reply."""
        self.is_over = True
        waiting = [over for _, _, over in self._out + self._asked if not over.done()]
        self._out, self._asked = [], []
        told = why
        if not (is_reply(why) or concerns_the_connection(why)):
            told = self._line.source.error("ConnectionError", str(why) or "the connection was closed")
            note(told, is_unsent=is_unsent(why))
        for index, over in enumerate(waiting):
            # Only the first one is told what is wrong with the program. Each error names another key.
            over.set_exception(why if index == 0 and isinstance(why, Exception) else copy.copy(told))
        await self._line.close()
        if self._working is not None and self._working is not asyncio.current_task():
            self._working.cancel()


class Tasks(Performer):
    """Has a connection to each server, and a second one for what replicas confirm: WAIT keeps all behind it waiting."""

    is_async = True
    event = Event
    line = TaskLine
    who = staticmethod(asyncio.current_task)
    sleep = staticmethod(asyncio.sleep)
    plain = staticmethod(lambda function: function)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._shared: dict[tuple[str, bool], Shared] = {}
        self._end: Optional[AsyncGenerator[None, None]] = None

    @staticmethod
    def where() -> Any:
        with contextlib.suppress(RuntimeError):
            return os.getpid(), asyncio.get_running_loop()
        # A child that was forked by a task runs outside of the loop.
        return os.getpid(), None

    @staticmethod
    def start(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Any]:
        return asyncio.create_task(work(), name=name).cancel

    async def send(self, source: Source, parts: list[Part], within: float) -> None:
        if self._end is None:
            self._end = _closes_at_the_end(self._shared)
            await self._end.asend(None)
        kind = (source.name, any(part.confirm is not None for part in parts))
        if kind not in self._shared or self._shared[kind].is_over:
            self._shared[kind] = Shared(source)
        await self._shared[kind].ask(parts, within)

    async def last(self, asking: Coroutine[Any, Any, Result]) -> Result:
        task: asyncio.Future[Result] = asyncio.create_task(asking)
        return await asyncio.shield(keep(task, logging.DEBUG, "a last command failed"))


class Runs:
    """Runs scripts for a key with its client."""

    _performer: ClassVar[type[Performer]] = Tasks
    _client: Any
    key: Any

    async def _run(self, script: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        return await self._performer.of(self._client).run(script, self.key, *arguments)


async def _closes_at_the_end(connections: dict[tuple[str, bool], Shared]) -> AsyncGenerator[None, None]:
    """Closes the connections when nobody refers to the client any more, or the loop shuts down its generators."""
    try:
        yield
    finally:
        for each in list(connections.values()):
            await each.end(ConnectionError("the event loop ends"))


_KEPT: set[asyncio.Future[Any]] = set()


def keep(task: asyncio.Future[Result], level: int, failure: str) -> asyncio.Future[Result]:
    """Keeps a task alive, as asyncio itself does not, and logs its failure."""

    def over(_: Any) -> None:
        _KEPT.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.log(level, failure, exc_info=task.exception())

    _KEPT.add(task)
    task.add_done_callback(over)
    return task

"""Connections beside the client's pool; see :mod:`dsync._source` for why."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any, AsyncGenerator, Deque, Dict, Optional

from .. import _route
from .._protocol import Words
from .._retry import is_reply
from .._route import Finding, Result, To, route_of
from .._source import Source
from .._steps import ANSWER_WITHIN

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["Line", "Lines", "lines_of", "timeout"]


class Line:
    """One connection. Its time-outs are those of each call."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._connection = source.connection(socket_timeout=None)
        self._is_connected = False
        self.is_closed = False

    async def connect(self) -> None:
        if self.is_closed:
            # It would be without what was subscribed to.
            raise ConnectionError("the connection was closed")
        try:
            if self.source.told is None:
                await self._connection.connect()
            else:
                await self._connection.connect_to(self.source.told)
        except BaseException:
            await self.close()
            raise
        self._is_connected = True

    async def send(self, words: Words) -> None:
        """Connects if there is no connection yet, and sends. Any error closes the connection."""
        if self.is_closed or not self._is_connected:
            await self.connect()
        try:
            await self._connection.send_command(*words)
        except BaseException:
            await self.close()
            raise

    async def receive(self) -> Any:
        """Returns the next reply. Whoever stops waiting closes the line: nobody knows then what comes next."""
        return await self._connection.read_response()

    async def ask(self, words: Words, within: float) -> Any:
        """Sends a command, and returns its reply. Any error closes the connection."""
        try:
            async with timeout(within):
                await self.send(words)
                return await self.receive()
        except asyncio.TimeoutError:
            await self.close()
            raise self.source.no_answer(within) from None
        except BaseException:
            await self.close()
            raise

    def is_stale(self) -> bool:
        """Returns whether the server has closed the connection.

        Not by ``can_read_destructive()`` of the libraries, which can swallow a cancellation before Python 3.11.
        """
        reader: Optional[asyncio.StreamReader] = self._connection._reader
        return self._is_connected and (reader is None or reader.at_eof() or reader.exception() is not None)

    async def close(self) -> None:
        self.is_closed = True
        await self._connection.disconnect(nowait=True)


class Pipe:
    """One connection for the requests of all tasks. Each is sent at once, and replies come in the same order."""

    def __init__(self, source: Source) -> None:
        self._line = Line(source)
        self._sending = asyncio.Lock()
        self._connecting: Optional[asyncio.Task[None]] = None
        self._pending: Deque[asyncio.Future[Any]] = deque()
        self._reading: Optional[asyncio.Task[None]] = None
        self._trouble: Optional[Exception] = None
        self.is_over = False

    async def ask(self, words: Words, within: float, is_asking: bool) -> Any:
        try:
            async with timeout(within):
                reply = await self._send(words, is_asking)
                return await reply
        except asyncio.TimeoutError:
            await self.end(ConnectionError("the server did not answer another request"))
            raise self._line.source.no_answer(within) from None

    async def _send(self, words: Words, is_asking: bool) -> asyncio.Future[Any]:
        async with self._sending:
            await self._be_connected()
            reply = asyncio.get_running_loop().create_future()
            try:
                if is_asking:
                    await self._line.send(["ASKING"])
                    skipped = asyncio.get_running_loop().create_future()
                    skipped.cancel()
                    self._pending.append(skipped)
                await self._line.send(words)
                self._raise_if_over()
            except BaseException as error:
                await self.end(error)
                raise
            self._pending.append(reply)
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            return reply

    async def _be_connected(self) -> None:
        self._raise_if_over()
        if not self._pending and self._line.is_stale():
            await self._line.close()
            self._line = Line(self._line.source)
            self._connecting = None
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
        # A request that is given up meanwhile does not take the connection from the others.
        await asyncio.wait([self._connecting])
        self._raise_if_over()

    async def _connect(self) -> None:
        try:
            async with timeout(ANSWER_WITHIN):
                await self._line.connect()
        except asyncio.TimeoutError:
            self._trouble = self._line.source.no_answer(ANSWER_WITHIN)
        except Exception as error:
            self._trouble = error
        if self._trouble is not None:
            await self.end(self._trouble)

    def _raise_if_over(self) -> None:
        if self.is_over:
            # The first one is told why. Each has an error of its own, as each names another key.
            trouble, self._trouble = self._trouble, None
            raise trouble or self._line.source.error("ConnectionError", "the connection was closed")

    async def _read(self) -> None:
        """Reads as long as somebody waits for a reply."""
        try:
            while self._pending:
                try:
                    reply = await self._line.receive()
                except Exception as error:
                    if not is_reply(error):
                        raise
                    answered = self._pending.popleft()
                    if not answered.done():
                        answered.set_exception(error)
                else:
                    answered = self._pending.popleft()
                    if not answered.done():
                        answered.set_result(reply)
            self._reading = None
        except BaseException as error:
            await self.end(error)
            if not isinstance(error, Exception):
                raise

    async def end(self, why: BaseException) -> None:
        """Closes the connection, and tells all that wait for a reply."""
        self.is_over = True
        pending, self._pending = self._pending, deque()
        for reply in pending:
            if not reply.done():
                message = str(why) or "the connection was closed"
                reply.set_exception(self._line.source.error("ConnectionError", message))
        await self._line.close()
        for task in (self._connecting, self._reading):
            if task is not None and task is not asyncio.current_task():
                task.cancel()


class Lines:
    """The connections of one client for requests, one for each server, and where they lead."""

    def __init__(self, client: Any) -> None:
        self.route = route_of(client)
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def ask(self, key: Any, words: Words, within: float) -> Any:
        """Sends a command that does not block to the server that has the key."""
        return await self._perform(_route.ask(self.route, key, words, within))

    async def find(self, key: Any, within: float) -> Source:
        """Returns which server has the key."""
        return await self._perform(_route.find(self.route, key, within))

    async def _perform(self, finding: Finding[Result]) -> Result:
        try:
            step = next(finding)
            while True:
                try:
                    reply = await self._ask(step)
                except Exception as error:
                    step = finding.throw(error)
                else:
                    step = finding.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _ask(self, step: To) -> Any:
        await self._be_in_this_loop()
        pipe = self._pipes.get(step.source.name)
        if pipe is None or pipe.is_over:
            pipe = self._pipes[step.source.name] = Pipe(step.source)
        return await pipe.ask(step.words, step.within, step.is_asking)

    async def _be_in_this_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._pipes: Dict[str, Pipe] = {}
            self._end = _closes_at_the_end(self._pipes)
            await self._end.asend(None)


async def _closes_at_the_end(pipes: Dict[str, Pipe]) -> AsyncGenerator[None, None]:
    """Closes the connections when nobody refers to the client any more, or the loop shuts down its generators."""
    try:
        yield
    finally:
        for pipe in pipes.values():
            await pipe.end(ConnectionError("the event loop ends"))


def lines_of(client: Any) -> Lines:
    # Kept at the client itself, so that they go with it: the settings of a cluster's connections refer back to it.
    lines: Optional[Lines] = getattr(client, "_dsync_lines", None)
    if lines is None:
        lines = client._dsync_lines = Lines(client)
    return lines

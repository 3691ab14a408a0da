"""Connections beside the client's pool; see :mod:`dsync._source` for why."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from typing import Any, AsyncGenerator, Deque, Dict, List, Mapping, Optional, Tuple, Union

from .._confirm import Part, commit, patience
from .._lease import now
from .._protocol import Words
from .._retry import doubt, is_in_doubt, is_reply
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

    async def send(self, *commands: Words) -> None:
        """Connects if there is no connection yet, and sends, in one write. Any error closes the connection."""
        if self.is_closed or not self._is_connected:
            await self.connect()
        try:
            await self._connection.send_packed_command(self._connection.pack_commands(commands))
        except BaseException:
            await self.close()
            raise

    async def receive(self) -> Any:
        """Returns the next reply. Whoever stops waiting closes the line: nobody knows then what comes next."""
        return await self._connection.read_response()

    async def reply(self) -> Any:
        """Returns the next reply, also an error reply."""
        try:
            return await self.receive()
        except Exception as error:
            if not is_reply(error):
                raise
            return error

    async def ask(self, parts: List[Part], within: float) -> None:
        """Sends the commands of all parts, and has those replies confirmed that have to be."""
        while open_ := [part for part in parts if part.is_open]:
            await self.commit(open_, within)

    async def commit(self, parts: List[Part], within: float) -> None:
        """Plays one round for all of them."""
        within += patience(part.confirm for part in parts)
        round_ = commit(parts)
        commands = next(round_)
        with contextlib.suppress(StopIteration):
            while True:
                commands = round_.send(await self._exchange(commands, within))

    async def _exchange(self, commands: List[Words], within: float) -> List[Any]:
        is_sent = False
        try:
            async with timeout(within):
                if not self._is_connected:
                    await self.connect()
                is_sent = True
                await self.send(*commands)
                return [await self.reply() for _ in commands]
        except BaseException as failure:
            await self.close()
            error = self.source.no_answer(within) if isinstance(failure, asyncio.TimeoutError) else failure
            if is_sent:
                doubt(error)
            raise error from None

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
        #: What each request waits for: so many replies, and those that have come.
        self._pending: Deque[Tuple[asyncio.Future[List[Any]], int, List[Any]]] = deque()
        self._reading: Optional[asyncio.Task[None]] = None
        self._trouble: Optional[Exception] = None
        self.is_over = False

    async def ask(self, parts: List[Part], within: float) -> None:
        commands = [words for part in parts for words in part.commands]
        try:
            async with timeout(within):
                replies = await (await self._send(commands))
        except asyncio.TimeoutError:
            await self.end(ConnectionError("the server did not answer another request"))
            raise self._line.source.no_answer(within) from None
        for part in parts:
            part.hears(replies[: len(part.commands)])
            replies = replies[len(part.commands) :]

    async def _send(self, commands: List[Words]) -> asyncio.Future[List[Any]]:
        async with self._sending:
            await self._be_connected()
            replies: asyncio.Future[List[Any]] = asyncio.get_running_loop().create_future()
            try:
                await self._line.send(*commands)
                self._raise_if_over()
            except BaseException as error:
                await self.end(error)
                raise
            self._pending.append((replies, len(commands), []))
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            return replies

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
                reply = await self._line.reply()
                answered, count, replies = self._pending[0]
                replies.append(reply)
                if len(replies) == count:
                    self._pending.popleft()
                    if not answered.done():
                        answered.set_result(replies)
            self._reading = None
        except BaseException as error:
            await self.end(error)
            if not isinstance(error, Exception):
                raise

    async def end(self, why: BaseException) -> None:
        """Closes the connection, and tells all that wait for a reply."""
        self.is_over = True
        pending, self._pending = self._pending, deque()
        _fail([replies for replies, _, _ in pending], self._line.source, why)
        await self._line.close()
        for task in (self._connecting, self._reading):
            if task is not None and task is not asyncio.current_task():
                task.cancel()


def _fail(waiting: List[asyncio.Future[Any]], source: Source, why: BaseException) -> None:
    """Tells all that wait. Each has an error of its own, as each names another key."""
    for replies in waiting:
        if not replies.done():
            error = source.error("ConnectionError", str(why) or "the connection was closed")
            if is_in_doubt(why):
                doubt(error)
            replies.set_exception(error)


class Commits:
    """A second connection, for the requests that replicas confirm: WAIT keeps all waiting that is sent behind it.

    What is asked while one WAIT is out is sent together, with one WAIT behind it.
    """

    def __init__(self, source: Source) -> None:
        self._line = Line(source)
        self._asked: List[Tuple[List[Part], float, asyncio.Future[None]]] = []
        self._working: Optional[asyncio.Task[None]] = None
        self.is_over = False

    async def ask(self, parts: List[Part], within: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((parts, within, over))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        confirms = [part.confirm for part in parts if part.confirm is not None]
        again = max(0.0, *(confirm.until - now() for confirm in confirms))
        try:
            # The WAIT before this one has its time, too.
            async with timeout(within + 2 * patience(confirms) + again):
                await over
        except asyncio.TimeoutError:
            error = self._line.source.no_answer(within)
            doubt(error)
            raise error from None

    async def _work(self) -> None:
        asked: List[Tuple[List[Part], float, asyncio.Future[None]]] = []
        try:
            while self._asked:
                asked, self._asked = [each for each in self._asked if not each[2].done()], []
                if self._line.is_stale():
                    await self._line.close()
                    self._line = Line(self._line.source)
                open_ = [part for parts, _, _ in asked for part in parts if part.is_open]
                if open_:
                    await self._line.commit(open_, max(within for _, within, _ in asked))
                for each in asked:
                    if any(part.is_open for part in each[0]):
                        self._asked.append(each)
                    elif not each[2].done():
                        each[2].set_result(None)
                asked = []
            self._working = None
        except BaseException as error:
            self._asked += asked
            await self.end(error)
            if not isinstance(error, Exception):
                raise

    async def end(self, why: BaseException) -> None:
        """Closes the connection, and tells all that wait for a reply."""
        self.is_over = True
        asked, self._asked = self._asked, []
        _fail([over for _, _, over in asked], self._line.source, why)
        await self._line.close()
        if self._working is not None and self._working is not asyncio.current_task():
            self._working.cancel()


class Lines:
    """The connections of one client for requests, one or two for each server, and where they lead."""

    def __init__(self, client: Any) -> None:
        self.route = route_of(client)
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def perform(self, finding: Finding[Result]) -> Result:
        """Performs a script of :mod:`dsync._route`."""
        try:
            step = next(finding)
            while True:
                try:
                    await self._ask(step)
                except Exception as error:
                    step = finding.throw(error)
                else:
                    step = next(finding)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _ask(self, step: To) -> None:
        await self._be_in_this_loop()
        pipes, name = self._pipes, step.source.name
        if all(part.confirm is None for part in step.parts):
            if name not in pipes or pipes[name].is_over:
                pipes[name] = Pipe(step.source)
            return await pipes[name].ask(step.parts, step.within)
        commits = self._commits
        if name not in commits or commits[name].is_over:
            commits[name] = Commits(step.source)
        await commits[name].ask(step.parts, step.within)

    async def _be_in_this_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._pipes: Dict[str, Pipe] = {}
            self._commits: Dict[str, Commits] = {}
            self._end = _closes_at_the_end(self._pipes, self._commits)
            await self._end.asend(None)


async def _closes_at_the_end(*connections: Mapping[str, Union[Pipe, Commits]]) -> AsyncGenerator[None, None]:
    """Closes the connections when nobody refers to the client any more, or the loop shuts down its generators."""
    try:
        yield
    finally:
        for each in [each for of_a_kind in connections for each in of_a_kind.values()]:
            await each.end(ConnectionError("the event loop ends"))


def lines_of(client: Any) -> Lines:
    # Kept at the client itself, so that they go with it: the settings of a cluster's connections refer back to it.
    lines: Optional[Lines] = getattr(client, "_dsync_lines", None)
    if lines is None:
        lines = client._dsync_lines = Lines(client)
    return lines

"""One connection, and what is asked over it; see :mod:`dsync._source` for why it is none of the client's pool.

Written once, as coroutines over what ``_sync`` and ``aio`` each do in their own way. Those of threads never suspend:
they block, so each ends at its first step.
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from typing import Any, AsyncContextManager, Optional

from ._confirm import Part, commit, patience
from ._protocol import Words
from ._retry import is_reply, note, refuses_the_certificate
from ._source import Source

#: No reply, as opposed to a reply that is null.
NOTHING = object()


class Line(ABC):
    """Any error but a reply closes it, for nobody knows then what would be read next."""

    def __init__(self, source: Source, within: float) -> None:
        """``within``: seconds to connect, and to read the rest of a reply that has begun."""
        self.source = source
        self.is_closed = False
        self._connection = source.connection(**self._time_outs(within))
        self._is_connected = False

    @abstractmethod
    def _time_outs(self, within: float) -> dict[str, Optional[float]]:
        """Returns those of the connection."""

    @abstractmethod
    def in_time(self, within: float) -> AsyncContextManager[None]:
        """Bounds what the sockets do not: raises the library's TimeoutError after so many seconds."""

    @abstractmethod
    async def receive(self, within: float) -> Any:
        """Returns what comes next; a thread gets :data:`NOTHING` if nothing comes in so many seconds."""

    @abstractmethod
    def is_fresh(self) -> bool:
        """Returns whether the server has sent nothing, not even the end of the connection."""

    async def connect(self) -> None:
        """Connects, unless it is connected."""
        if self.is_closed:
            # It would be without what was subscribed to.
            raise ConnectionError("the connection was closed")
        if self._is_connected:
            return
        told, connection = self.source.told, self._connection
        try:
            await _settled(connection.connect() if told is None else connection.connect_to(told))
        except BaseException as error:
            if refuses_the_certificate(error):
                note(error, may_pass=False)
            await self.close()
            raise
        self._is_connected = True

    async def send(self, *commands: Words) -> None:
        """Connects if need be, and sends, in one write."""
        await self.connect()
        try:
            await _settled(self._connection.send_packed_command(self._connection.pack_commands(commands)))
        except BaseException:
            await self.close()
            raise

    async def ask(self, parts: list[Part], within: float) -> None:
        """Sends the commands of all parts, and has those replies confirmed that have to be."""
        while open_ := [part for part in parts if part.is_open]:
            await self.commit(open_, within)

    async def commit(self, parts: list[Part], within: float) -> None:
        """Plays one round for all of them."""
        within += patience(part.confirm for part in parts)
        await commit(parts, lambda commands: self._exchange(commands, within))

    async def _exchange(self, commands: list[Words], within: float) -> list[Any]:
        deadline = time.monotonic() + within
        is_sent = False
        try:
            async with self.in_time(within):
                await self.connect()
                is_sent = True
                await self.send(*commands)
                return [await self._reply(deadline, within) for _ in commands]
        except BaseException as error:
            await self.close()
            if not is_sent:
                note(error, is_unsent=True)
            raise

    async def _reply(self, deadline: float, within: float) -> Any:
        """Returns the next reply, also an error reply."""
        try:
            reply = await self.receive(max(0.0, deadline - time.monotonic()))
        except Exception as error:
            if not is_reply(error):
                raise
            return error
        if reply is NOTHING:
            raise self.source.no_answer(within)
        return reply

    async def close(self) -> None:
        self.is_closed, self._is_connected = True, False
        await self._disconnect()

    @abstractmethod
    async def _disconnect(self) -> None: ...


async def _settled(result: Any) -> None:
    """Awaits what a connection of asyncio returns."""
    if result is not None and inspect.isawaitable(result):
        await result

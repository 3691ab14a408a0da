"""Connections beside the client's pool, for waits and announcements; see :mod:`dsync._source` for why."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Optional

from .._protocol import Words
from .._source import Source
from .._steps import ANSWER_WITHIN

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["Line", "timeout"]


class Line:
    """One connection. It is closed by any error, for nobody knows then what would be read next."""

    def __init__(self, source: Source) -> None:
        self._source = source
        # The time-outs are those of each call.
        self._connection = source.connection(socket_timeout=None)
        self._is_closed = False

    async def send(self, words: Words) -> None:
        """Connects if there is no connection yet, and sends."""
        if self._is_closed:
            # It would connect again, without what was subscribed to.
            raise ConnectionError("the connection was closed")
        try:
            async with timeout(ANSWER_WITHIN):
                await self._connection.connect()
                await self._connection.send_command(*words)
        except asyncio.TimeoutError:
            await self.close()
            raise self._source.timeout_error(f"the server could not be reached within {ANSWER_WITHIN:.1f} s") from None
        except BaseException:
            await self.close()
            raise

    async def receive(self, within: Optional[float] = None) -> Any:
        """Returns the next reply."""
        try:
            async with timeout(within):
                return await self._connection.read_response()
        except asyncio.TimeoutError:
            await self.close()
            raise self._source.timeout_error(f"the server did not answer within {within:.1f} s") from None
        except BaseException:
            await self.close()
            raise

    async def ask(self, words: Words, within: float) -> Any:
        await self.send(words)
        return await self.receive(within)

    async def close(self) -> None:
        self._is_closed = True
        await self._connection.disconnect(nowait=True)

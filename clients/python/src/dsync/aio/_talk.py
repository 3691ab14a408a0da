"""Performs the steps of a script with a client of asyncio."""

from __future__ import annotations

import asyncio
from typing import Any, Coroutine, Optional, Set

from .._retry import log, passes
from .._source import name
from .._steps import LONGEST_TRY, Ask, Block, Pause, Result, Script, Step, Turn, Watch
from ._lines import Line, lines_of
from ._turns import Watch as Watching
from ._turns import watch


async def run(script: Script[Result], client: Any, key: str) -> Result:
    """Runs a script to its end."""
    talk = _Talk(client, key)
    try:
        step = next(script)
        while True:
            try:
                result = await talk.perform(step)
            except BaseException as error:  # Also a cancellation: the script withdraws its request.
                step = script.throw(error)
            else:
                step = script.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        await talk.close()


class _Talk:
    """What one script needs of the client."""

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._lines = lines_of(client)
        self._key = key
        self._blocking: Optional[Line] = None
        self._watching: Optional[Watching] = None

    async def perform(self, step: Step) -> Any:
        if isinstance(step, Ask):
            asking = self._lines.ask(self._key, step.words, step.within)
            return await (_shielded(asking) if step.is_last else asking)
        if isinstance(step, Block):
            return await self._block(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds, False)
        if isinstance(step, Watch):
            return await self._watch(step.channel)
        assert isinstance(step, Turn)
        assert self._watching is not None
        return await self._watching.wait(step.seconds)

    async def close(self) -> None:
        if self._blocking is not None:
            await self._blocking.close()
        if self._watching is not None:
            await self._watching.end()

    async def _block(self, step: Block) -> Any:
        line, self._blocking = self._blocking, None
        if line is None:
            line = Line(await self._lines.find(self._key, LONGEST_TRY))
        try:
            reply = await line.ask(step.words, step.seconds + LONGEST_TRY)
        except Exception as error:
            # The next attempt may need another server.
            if passes(error):
                self._lines.route.doubt(line.source)
            name(error, line.source.name, repr(self._key))
            raise
        self._blocking = line
        return reply

    async def _watch(self, channel: str) -> None:
        if self._watching is not None:
            watching, self._watching = self._watching, None
            await watching.end()
        source = await self._lines.find(self._key, LONGEST_TRY)
        try:
            self._watching = await watch(self._client, source, channel)
        except Exception as error:
            if passes(error):
                self._lines.route.doubt(source)
            name(error, source.name, repr(self._key))
            raise


# asyncio itself keeps no task alive.
_LAST: Set[asyncio.Task[Any]] = set()


async def _shielded(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Awaits a command that goes out even if the caller is cancelled meanwhile."""
    task = asyncio.create_task(coroutine)
    _LAST.add(task)
    task.add_done_callback(_forget)
    return await asyncio.shield(task)


def _forget(task: asyncio.Task[Any]) -> None:
    _LAST.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.debug("a last command failed: %s", task.exception())

"""Performs the steps of a script with a client of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Coroutine, Optional, Set

from .. import _route
from .._confirm import Part
from .._retry import log
from .._steps import LONGEST_TRY, Ask, AskAll, Block, Pause, Result, Script, Step, Turn, Watch
from ._lines import Line, lines_of, timeout
from ._turns import Watch as Watching
from ._turns import watch


async def run(script: Script[Result], client: Any, key: str, changed: Optional[asyncio.Event] = None) -> Result:
    """Runs a script to its end. Pauses end early when ``changed`` is set."""
    talk = _Talk(client, key, changed)
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

    def __init__(self, client: Any, key: str, changed: Optional[asyncio.Event]) -> None:
        self._client = client
        self._lines = lines_of(client)
        self._route = self._lines.route
        self._key = key
        self._changed = changed
        self._blocking: Optional[Line] = None
        self._watching: Optional[Watching] = None

    async def perform(self, step: Step) -> Any:
        if isinstance(step, Ask):
            asking = self._lines.perform(_route.ask(self._route, self._key, step.words, step.within, step.confirm))
            return await (_shielded(asking) if step.is_last else asking)
        if isinstance(step, AskAll):
            return await self._lines.perform(_route.ask_all(self._route, step.requests, step.within))
        if isinstance(step, Block):
            return await self._block(step)
        if isinstance(step, Pause):
            return await self._pause(step.seconds)
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

    async def _pause(self, seconds: float) -> None:
        if self._changed is None:
            return await asyncio.sleep(seconds)
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                await self._changed.wait()
                self._changed.clear()

    async def _block(self, step: Block) -> Any:
        line, self._blocking = self._blocking, None
        if line is None:
            line = Line(await self._lines.perform(_route.find(self._route, self._key, LONGEST_TRY)))
        try:
            part = Part([step.words], step.confirm)
            await line.ask([part], step.seconds + LONGEST_TRY)
            [reply] = part.replies
            if isinstance(reply, Exception):
                raise reply
        except BaseException as error:
            await line.close()
            if isinstance(error, Exception):
                self._route.blame(line.source, error, self._key)
            raise
        self._blocking = line
        return reply

    async def _watch(self, channel: str) -> None:
        if self._watching is not None:
            watching, self._watching = self._watching, None
            await watching.end()
        source = await self._lines.perform(_route.find(self._route, self._key, LONGEST_TRY))
        try:
            self._watching = await watch(self._client, source, channel)
        except Exception as error:
            self._route.blame(source, error, self._key)
            raise


async def _shielded(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Awaits a command that goes out even if the caller is cancelled meanwhile."""
    return await asyncio.shield(keep(asyncio.create_task(coroutine), logging.DEBUG, "a last command failed"))


_KEPT: Set[asyncio.Future[Any]] = set()


def keep(task: asyncio.Future[Any], level: int, failure: str) -> asyncio.Future[Any]:
    """Keeps a task alive, as asyncio itself does not, and logs its failure."""

    def over(_: Any) -> None:
        _KEPT.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.log(level, failure, exc_info=task.exception())

    _KEPT.add(task)
    task.add_done_callback(over)
    return task

"""Listens to the announcements of turns, for requests that wait without a connection.

One connection and one task for each client (for each node, in a cluster) serve all of its waiting requests. They exist
while anybody waits. A message that is lost costs nothing but time, because the requests are repeated anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Dict, Hashable, List, Optional

from .._retry import log
from .._source import Source, is_cluster, source_of
from .._steps import ANSWER_WITHIN
from ._lines import Line, timeout


class Watch:
    """One request's interest in its channel."""

    def __init__(self, listener: Listener, channel: str) -> None:
        self._listener = listener
        self.channel = channel
        self.confirmed = asyncio.Event()
        self.turn = asyncio.Event()
        self.is_broken = False

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                await self.turn.wait()
        self.turn.clear()
        if self.is_broken:
            # The caller asks again, and subscribes anew if it still waits.
            raise ConnectionError("the announcements of turns are not heard any more")

    async def end(self) -> None:
        await self._listener.forget(self)


class Listener:
    """The subscriptions on one connection, and the task that reads from it."""

    def __init__(self, source: Source, is_sharded: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_over = False
        self._prefix = "S" if is_sharded else ""
        self._source = source
        self._line = Line(source)
        self._sending = asyncio.Lock()
        self._watches: List[Watch] = []
        self._task: Optional[asyncio.Task[None]] = None

    async def add(self, channel: str) -> Watch:
        watch = Watch(self, channel)
        # Before anything is awaited, so that the listener does not end for want of watches.
        self._watches.append(watch)
        try:
            async with self._sending:
                await self._line.send([f"{self._prefix}SUBSCRIBE", channel])
                if self._task is None:
                    self._task = asyncio.create_task(self._listen())
            try:
                async with timeout(ANSWER_WITHIN):
                    await watch.confirmed.wait()
            except asyncio.TimeoutError:
                raise self._source.timeout_error("the server did not confirm a subscription") from None
        except BaseException:
            await self.forget(watch)
            raise
        return watch

    async def forget(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
        if not self._watches:
            self.is_over = True
            if self._task is not None:
                self._task.cancel()
            await self._line.close()
        elif not self.is_over:
            try:
                async with self._sending:
                    await self._line.send([f"{self._prefix}UNSUBSCRIBE", watch.channel])
            except Exception as error:  # The task that listens notices, too.
                log.debug("cannot unsubscribe from %s: %s", watch.channel, error)

    async def _listen(self) -> None:
        try:
            while True:
                message = await self._line.receive()
                self._tell(message[0].decode(), message[1].decode())
        except Exception as error:
            log.info("announcements of turns are not heard for now: %s", error)
        finally:
            self.is_over = True
            await self._line.close()
            for watch in self._watches:
                watch.is_broken = True
                watch.confirmed.set()
                watch.turn.set()

    def _tell(self, kind: str, channel: str) -> None:
        if kind.endswith("unsubscribe"):
            return
        for watch in self._watches:
            if watch.channel == channel:
                (watch.confirmed if kind.endswith("subscribe") else watch.turn).set()


async def watch(client: Any, key: str, channel: str) -> Watch:
    """Subscribes for a request of this client, and returns when the server has confirmed it."""
    source = source_of(client, key)
    # Kept at the client itself, so that they go with it.
    listeners: Optional[Dict[Optional[Hashable], Listener]] = getattr(client, "_dsync_listeners", None)
    if listeners is None:
        listeners = client._dsync_listeners = {}
    listener = listeners.get(source.node)
    if listener is None or listener.is_over or listener.loop is not asyncio.get_running_loop():
        listener = listeners[source.node] = Listener(source, is_cluster(client))
    return await listener.add(channel)

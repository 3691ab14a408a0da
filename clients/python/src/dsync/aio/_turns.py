"""Listens to the announcements of turns, for requests that wait without a connection.

One connection and one task for each client (for each node, in a cluster) serve all of its waiting requests. They exist
while anybody waits. A message that is lost costs nothing but time, because the requests are repeated anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Dict, List, Optional

from .._retry import log
from .._source import Source, is_cluster
from .._steps import LONGEST_TRY
from ._lines import Line, timeout


class Watch:
    """One request's interest in its channel."""

    def __init__(self, listener: Listener, channel: str) -> None:
        self._listener = listener
        self.channel = channel
        self.confirmed = asyncio.Event()
        self.turn = asyncio.Event()
        self._trouble: Optional[str] = None

    async def until_confirmed(self) -> None:
        """Waits until the server has confirmed the subscription."""
        await self.confirmed.wait()
        self._raise_if_broken()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                await self.turn.wait()
        self.turn.clear()
        self._raise_if_broken()

    def breaks(self, trouble: str) -> None:
        self._trouble = trouble
        self.confirmed.set()
        self.turn.set()

    def _raise_if_broken(self) -> None:
        if self._trouble is not None:
            # The caller asks again, and subscribes anew if it still waits.
            message = f"the announcements of turns are not heard any more: {self._trouble}"
            raise self._listener.source.error("ConnectionError", message)

    async def end(self) -> None:
        await self._listener.forget(self)


class Listener:
    """The subscriptions on one connection, and the task that reads from it."""

    def __init__(self, source: Source, is_sharded: bool) -> None:
        self.source = source
        self.loop = asyncio.get_running_loop()
        self.is_over = False
        self._prefix = "S" if is_sharded else ""
        self._line = Line(source)
        self._sending = asyncio.Lock()
        self._watches: List[Watch] = []
        self._task: Optional[asyncio.Task[None]] = None

    async def add(self, channel: str) -> Watch:
        """Subscribes, and returns when the server has confirmed it."""
        watch = Watch(self, channel)
        # Before anything is awaited, so that the listener does not end for want of watches.
        self._watches.append(watch)
        try:
            async with timeout(LONGEST_TRY):
                async with self._sending:
                    await self._line.send([f"{self._prefix}SUBSCRIBE", channel])
                    if self._task is None:
                        self._task = asyncio.create_task(self._listen())
                await watch.until_confirmed()
        except asyncio.TimeoutError:
            # It ends for all, so that the next one looks for the server afresh.
            await self._end("the server did not confirm a subscription")
            raise self.source.no_answer(LONGEST_TRY) from None
        except BaseException:
            if self._line.is_closed:
                # Whoever was sending took the connection from the others.
                await self._end("the connection was closed")
            else:
                await self.forget(watch)
            raise
        return watch

    async def forget(self, watch: Watch) -> None:
        is_heard = watch in self._watches
        if is_heard:
            self._watches.remove(watch)
        if not self._watches:
            await self._end("nobody waits any more")
        elif is_heard and not self.is_over:
            try:
                async with self._sending:
                    await self._line.send([f"{self._prefix}UNSUBSCRIBE", watch.channel])
            except Exception as error:  # The task that listens notices, too.
                log.debug("cannot unsubscribe from %s: %s", watch.channel, error)

    async def _end(self, trouble: str) -> None:
        self.is_over = True
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.breaks(trouble)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        await self._line.close()

    async def _listen(self) -> None:
        trouble = "the event loop ends"
        try:
            while True:
                message = await self._line.receive()
                self._tell(message[0].decode(), message[1].decode())
        except Exception as error:
            trouble = str(error)
            log.info("announcements of turns are not heard for now: %s", error)
        finally:
            await self._end(trouble)

    def _tell(self, kind: str, channel: str) -> None:
        for watch in [watch for watch in self._watches if watch.channel == channel]:
            if not kind.endswith("unsubscribe"):
                (watch.confirmed if kind.endswith("subscribe") else watch.turn).set()
            elif watch.confirmed.is_set():
                # The slot has another node by now. Before the confirmation it is the answer to an earlier wish.
                self._watches.remove(watch)
                watch.breaks("the server has the key no more")


async def watch(client: Any, source: Source, channel: str) -> Watch:
    """Subscribes for a request of this client, and returns when the server has confirmed it."""
    # Kept at the client itself, so that they go with it.
    listeners: Optional[Dict[str, Listener]] = getattr(client, "_dsync_listeners", None)
    if listeners is None:
        listeners = client._dsync_listeners = {}
    listener = listeners.get(source.name)
    if listener is None or listener.is_over or listener.loop is not asyncio.get_running_loop():
        listener = listeners[source.name] = Listener(source, is_cluster(client))
    return await listener.add(channel)

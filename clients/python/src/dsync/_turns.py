"""Listens to the announcements of turns, for requests that wait without a connection.

One connection and one thread or task for each client (for each node, in a cluster) serve all of its waiting requests.
They exist while anybody waits. A message that is lost costs nothing but time, because the requests are repeated anyway.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Coroutine, Optional

from ._line import NOTHING, Line
from ._mutex import taking
from ._retry import log
from ._times import ANSWER_WITHIN

#: Has this run in the background, under a name. Returns what cancels it.
Start = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], Callable[[], Any]]


class Watching:
    """One request's interest in its channel."""

    def __init__(self, listener: Listener, channel: bytes, event: type[Any]) -> None:
        self._listener = listener
        self.channel = channel
        self.confirmed: Any = event()
        self.turn: Any = event()
        self._trouble: Optional[str] = None

    async def wait(self, seconds: float) -> None:
        await self.turn.within(seconds)
        self.turn.clear()
        self.raise_if_broken()

    def breaks(self, trouble: str) -> None:
        self._trouble = trouble
        self.confirmed.set()
        self.turn.set()

    def raise_if_broken(self) -> None:
        if self._trouble is not None:
            # The caller asks again, and subscribes anew if it still waits.
            message = f"the announcements of turns are not heard any more: {self._trouble}"
            raise self._listener.source.error("ConnectionError", message)

    async def end(self) -> None:
        await self._listener.forget(self)


class Listener:
    """The subscriptions on one connection, and the thread or task that connects and reads from it."""

    def __init__(self, line: Line, event: type[Any], start: Start, *, is_sharded: bool) -> None:
        """``event`` and ``start`` are those of threads or of tasks."""
        self.source = line.source
        self._event = event
        self._start = start
        self._prefix = "S" if is_sharded else ""
        self._line = line
        self._lock = threading.RLock()
        self._watches: list[Watching] = []
        self._cancel: Optional[Callable[[], Any]] = None
        self._is_connected = False
        self.is_over = False

    def add(self, channel: bytes) -> Watching:
        """Notes another interest, which is broken at once if this listener has just ended."""
        watching = Watching(self, channel, self._event)
        with taking(self._lock):
            if self.is_over:
                watching.breaks("nobody was left who waits")
                return watching
            if self._cancel is None:
                self._cancel = self._start("dsync-turns", self._listen)
            self._watches.append(watching)
        return watching

    async def confirm(self, watching: Watching) -> None:
        """Returns when the server has confirmed the subscription."""
        try:
            # Otherwise it is subscribed to as soon as there is a connection.
            if self._is_connected:
                await self._send("SUBSCRIBE", watching)
            if not await watching.confirmed.within(ANSWER_WITHIN):
                # It ends for all, so that the next one looks for the server afresh.
                self._stop()
                raise self.source.no_answer(ANSWER_WITHIN)
            watching.raise_if_broken()
        except BaseException:
            if self._line.is_closed:
                # Who was sending took the connection from the others.
                self._stop()
            await self.forget(watching)
            raise

    async def forget(self, watching: Watching) -> None:
        with taking(self._lock):
            is_heard = watching in self._watches
            if is_heard:
                self._watches.remove(watching)
            if not self._watches:
                self._stop()
        if is_heard and self._is_connected and not self.is_over:
            try:
                await self._send("UNSUBSCRIBE", watching)
            except Exception as error:  # Who listens notices, too.
                log.debug("cannot unsubscribe from %s: %s", watching.channel, error)

    def _stop(self) -> None:
        self.is_over = True
        if self._cancel is not None:
            self._cancel()

    async def _send(self, verb: str, watching: Watching) -> None:
        async with self._line.in_time(ANSWER_WITHIN):
            await self._line.send([self._prefix + verb, watching.channel])

    async def _listen(self) -> None:
        trouble = "the server did not confirm a subscription"
        try:
            await self._line.connect()
            with taking(self._lock):
                self._is_connected = True
                watches = list(self._watches)
            for watching in watches:
                await self._send("SUBSCRIBE", watching)
            # A thread waits shortly, so that it ends soon after the last request that waits.
            while not self.is_over:
                message = await self._line.receive(1.0)
                if message is not NOTHING:
                    self._tell(message[0].decode(), message[1])
        except Exception as error:
            trouble = str(error)
            log.info("announcements of turns are not heard for now: %s", error)
        finally:
            with taking(self._lock):
                self.is_over = True
                left, self._watches = self._watches, []
            for watching in left:
                watching.breaks(trouble)
            await self._line.close()

    def _tell(self, kind: str, channel: bytes) -> None:
        with taking(self._lock):
            for watching in [watching for watching in self._watches if watching.channel == channel]:
                if not kind.endswith("unsubscribe"):
                    (watching.confirmed if kind.endswith("subscribe") else watching.turn).set()
                elif watching.confirmed.is_set():
                    # The slot has another node by now. Before the confirmation it is the answer to an earlier wish.
                    self._watches.remove(watching)
                    watching.breaks("the server has the key no more")

"""Listens to the announcements of turns, for requests that wait without a connection.

One connection and one thread for each client (for each node, in a cluster) serve all of its waiting requests. They
exist while anybody waits. A message that is lost costs nothing but time, because the requests are repeated anyway.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, Hashable, List, Optional

from .._retry import log
from .._source import Source, is_cluster, source_of
from .._steps import ANSWER_WITHIN
from ._lines import NOTHING, Line


class Watch:
    """One request's interest in its channel."""

    def __init__(self, listener: Listener, channel: str) -> None:
        self._listener = listener
        self.channel = channel
        self.confirmed = threading.Event()
        self.turn = threading.Event()
        self.is_broken = False

    def wait(self, seconds: float) -> None:
        self.turn.wait(seconds)
        self.turn.clear()
        if self.is_broken:
            # The caller asks again, and subscribes anew if it still waits.
            raise ConnectionError("the announcements of turns are not heard any more")

    def end(self) -> None:
        self._listener.forget(self)


class Listener:
    """The subscriptions on one connection, and the thread that reads from it."""

    def __init__(self, source: Source, is_sharded: bool) -> None:
        self._prefix = "S" if is_sharded else ""
        self._line = Line(source)
        self._line.connect()
        self._lock = threading.Lock()
        self._watches: List[Watch] = []
        self._is_over = False

    def add(self, channel: str) -> Optional[Watch]:
        """Subscribes. Returns ``None`` if this listener has ended."""
        watch = Watch(self, channel)
        with self._lock:
            if self._is_over:
                return None
            try:
                self._line.send([f"{self._prefix}SUBSCRIBE", channel])
            except BaseException:
                # The connection is closed, and the thread, if there is one, ends by that.
                self._is_over = True
                raise
            self._watches.append(watch)
            if len(self._watches) == 1:
                threading.Thread(target=self._listen, name="dsync-turns", daemon=True).start()
        return watch

    def forget(self, watch: Watch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)
            if not self._watches:
                self._is_over = True
            elif not self._is_over:
                try:
                    self._line.send([f"{self._prefix}UNSUBSCRIBE", watch.channel])
                except Exception as error:  # The thread that listens notices, too.
                    log.debug("cannot unsubscribe from %s: %s", watch.channel, error)

    def _listen(self) -> None:
        try:
            # Short waits, so that the thread ends soon after the last request that waits.
            while not self._is_over:
                message = self._line.receive(1.0)
                if message is not NOTHING:
                    self._tell(message[0].decode(), message[1].decode())
        except Exception as error:
            log.info("announcements of turns are not heard for now: %s", error)
        finally:
            with self._lock:
                self._is_over = True
                left = list(self._watches)
            self._line.close()
            for watch in left:
                watch.is_broken = True
                watch.confirmed.set()
                watch.turn.set()

    def _tell(self, kind: str, channel: str) -> None:
        with self._lock:
            told = [watch for watch in self._watches if watch.channel == channel]
        for watch in told:
            if kind.endswith("unsubscribe"):
                continue
            (watch.confirmed if kind.endswith("subscribe") else watch.turn).set()


class Turns:
    """The listeners of one client. Thread-safe."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._listeners: Dict[Optional[Hashable], Listener] = {}

    def watch(self, client: Any, key: str, channel: str) -> Watch:
        """Subscribes, and returns when the server has confirmed it."""
        if self._pid != os.getpid():
            # After a fork the connections and threads are the parent's.
            self._reset()
        source = source_of(client, key)
        with self._lock:
            listener = self._listeners.get(source.node)
            watch = None if listener is None else listener.add(channel)
            if watch is None:
                listener = self._listeners[source.node] = Listener(source, is_cluster(client))
                watch = listener.add(channel)
                assert watch is not None, "a new listener has not ended"
        try:
            if not watch.confirmed.wait(ANSWER_WITHIN):
                raise source.timeout_error("the server did not confirm a subscription")
        except BaseException:
            watch.end()
            raise
        return watch


_LOCK = threading.Lock()


def turns_of(client: Any) -> Turns:
    with _LOCK:
        turns: Optional[Turns] = getattr(client, "_dsync_turns", None)
        if turns is None:
            turns = client._dsync_turns = Turns()
        return turns

"""Listens to the announcements of turns, for requests that wait without a connection.

One connection and one thread for each client (for each node, in a cluster) serve all of its waiting requests. They
exist while anybody waits. A message that is lost costs nothing but time, because the requests are repeated anyway.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional

from .._retry import log
from .._source import Source, is_cluster
from .._steps import LONGEST_TRY
from ._lines import NOTHING, Line


class Watch:
    """One request's interest in its channel."""

    def __init__(self, listener: Listener, channel: str) -> None:
        self._listener = listener
        self.channel = channel
        self.confirmed = threading.Event()
        self.turn = threading.Event()
        self._trouble: Optional[str] = None

    def until_confirmed(self) -> None:
        """Waits until the server has confirmed the subscription."""
        if not self.confirmed.wait(LONGEST_TRY):
            self._listener.stop()
            raise self._listener.source.no_answer(LONGEST_TRY)
        self._raise_if_broken()

    def wait(self, seconds: float) -> None:
        self.turn.wait(seconds)
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

    def end(self) -> None:
        self._listener.forget(self)


class Listener:
    """The subscriptions on one connection, and the thread that connects and reads from it."""

    def __init__(self, source: Source, is_sharded: bool) -> None:
        self.source = source
        self._prefix = "S" if is_sharded else ""
        self._line = Line(source, LONGEST_TRY)
        self._lock = threading.Lock()
        self._watches: List[Watch] = []
        self._thread: Optional[threading.Thread] = None
        self._is_connected = False
        self._is_over = False

    def add(self, channel: str) -> Optional[Watch]:
        """Subscribes. Returns ``None`` if this listener has ended."""
        watch = Watch(self, channel)
        with self._lock:
            if self._is_over:
                return None
            try:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._listen, name="dsync-turns", daemon=True)
                    self._thread.start()
                elif self._is_connected:
                    self._subscribe(watch)
            except BaseException:
                # The connection is closed, and the thread, if there is one, ends by that.
                self._is_over = True
                raise
            self._watches.append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        with self._lock:
            is_heard = watch in self._watches
            if is_heard:
                self._watches.remove(watch)
            if not self._watches:
                self._is_over = True
            elif is_heard and self._is_connected and not self._is_over:
                try:
                    self._line.send([f"{self._prefix}UNSUBSCRIBE", watch.channel])
                except Exception as error:  # The thread that listens notices, too.
                    log.debug("cannot unsubscribe from %s: %s", watch.channel, error)

    def stop(self) -> None:
        """Ends this listener for all, so that the next one looks for the server afresh."""
        self._is_over = True

    def _subscribe(self, watch: Watch) -> None:
        self._line.send([f"{self._prefix}SUBSCRIBE", watch.channel])

    def _listen(self) -> None:
        trouble = "the server did not confirm a subscription"
        try:
            self._line.connect()
            with self._lock:
                for watch in self._watches:
                    self._subscribe(watch)
                self._is_connected = True
            # Short waits, so that the thread ends soon after the last request that waits.
            while not self._is_over:
                message = self._line.receive(1.0)
                if message is not NOTHING:
                    self._tell(message[0].decode(), message[1].decode())
        except Exception as error:
            trouble = str(error)
            log.info("announcements of turns are not heard for now: %s", error)
        finally:
            with self._lock:
                self._is_over = True
                left = list(self._watches)
            self._line.close()
            for watch in left:
                watch.breaks(trouble)

    def _tell(self, kind: str, channel: str) -> None:
        with self._lock:
            for watch in [watch for watch in self._watches if watch.channel == channel]:
                if not kind.endswith("unsubscribe"):
                    (watch.confirmed if kind.endswith("subscribe") else watch.turn).set()
                elif watch.confirmed.is_set():
                    # The slot has another node by now. Before the confirmation it is the answer to an earlier wish.
                    self._watches.remove(watch)
                    watch.breaks("the server has the key no more")


class Turns:
    """The listeners of one client. Thread-safe."""

    def __init__(self, is_sharded: bool) -> None:
        self._is_sharded = is_sharded
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._listeners: Dict[str, Listener] = {}

    def watch(self, source: Source, channel: str) -> Watch:
        """Subscribes, and returns when the server has confirmed it."""
        if self._pid != os.getpid():
            # After a fork the connections and threads are the parent's.
            self._reset()
        with self._lock:
            listener = self._listeners.get(source.name)
            watch = None if listener is None else listener.add(channel)
            if watch is None:
                listener = self._listeners[source.name] = Listener(source, self._is_sharded)
                watch = listener.add(channel)
                assert watch is not None, "a new listener has not ended"
        try:
            watch.until_confirmed()
        except BaseException:
            watch.end()
            raise
        return watch


_LOCK = threading.Lock()


def turns_of(client: Any) -> Turns:
    with _LOCK:
        turns: Optional[Turns] = getattr(client, "_dsync_turns", None)
        if turns is None:
            turns = client._dsync_turns = Turns(is_cluster(client))
        return turns

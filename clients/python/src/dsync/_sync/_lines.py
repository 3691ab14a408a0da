"""Connections beside the client's pool; see :mod:`dsync._source` for why."""

from __future__ import annotations

import os
import selectors
import threading
import time
from typing import Any, Dict, Hashable, List, Optional

from .._protocol import Words
from .._retry import passes
from .._source import Source, is_cluster, source_of
from .._steps import ANSWER_WITHIN

#: How many connections without work are kept for each server.
KEPT_IDLE = 4

# Unlike others it needs no file of its own.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)

#: No reply, as opposed to a reply that is null.
NOTHING = object()


class Line:
    """One connection. It is closed by any error, for nobody knows then what would be read next."""

    def __init__(self, source: Source, within: float = ANSWER_WITHIN) -> None:
        """``within``: seconds to connect, and to read the rest of a reply that has begun."""
        self.source = source
        connect_within = min(within, source.settings["socket_connect_timeout"])
        self._connection = source.connection(socket_timeout=within, socket_connect_timeout=connect_within)
        self._is_closed = False

    def connect(self) -> None:
        self._connection.connect()

    def send(self, words: Words) -> None:
        if self._is_closed:
            # It would connect again, without what was subscribed to.
            raise ConnectionError("the connection was closed")
        try:
            # A Sentinel's connection asks for the address here only.
            self._connection.connect()
            self._connection.send_command(*words)
        except BaseException:
            self.close()
            raise

    def receive(self, within: float) -> Any:
        """Returns the next reply, or :data:`NOTHING` if none comes in so many seconds."""
        try:
            return self._connection.read_response() if self._comes(within) else NOTHING
        except BaseException:
            self.close()
            raise

    def _comes(self, within: float) -> bool:
        """Waits for something to read.

        Not in the library, which takes each TimeoutError for its own, also one of the program's handler of a signal.
        """
        deadline = time.monotonic() + within
        while not self._connection.can_read(timeout=0):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with _Selector() as selector:
                selector.register(self._connection._sock, selectors.EVENT_READ)
                selector.select(left)
        return True

    def ask(self, words: Words, within: float) -> Any:
        self.send(words)
        reply = self.receive(within)
        if reply is NOTHING:
            self.close()
            raise self.source.timeout_error(f"the server did not answer within {within:.1f} s")
        return reply

    def is_fresh(self) -> bool:
        """Returns whether the server has sent nothing, not even the end of the connection."""
        try:
            return not self._connection.can_read(timeout=0)
        except Exception:
            return False

    def close(self) -> None:
        self._is_closed = True
        self._connection.disconnect()


class Lines:
    """The connections of one client that have no work at the moment. Thread-safe."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: Dict[Optional[Hashable], List[Line]] = {}

    def ask(self, client: Any, key: str, words: Words, within: float) -> Any:
        """Sends a command that does not block to the server that has the key."""
        try:
            return self._ask(source_of(client, key), words, within)
        except Exception as error:
            if not (is_cluster(client) and passes(error)):
                raise
        # The slot has another node by now, or is about to. The client follows redirections, and learns from them.
        return client.execute_command(*words)

    def _ask(self, source: Source, words: Words, within: float) -> Any:
        line = self._borrow(source, within)
        reply = line.ask(words, within)
        with self._lock:
            idle = self._idle.setdefault(source.node, [])
            if len(idle) < KEPT_IDLE:
                idle.append(line)
                return reply
        line.close()
        return reply

    def _borrow(self, source: Source, within: float) -> Line:
        if self._pid != os.getpid():
            # After a fork the connections are the parent's.
            self._reset()
        while True:
            with self._lock:
                idle = self._idle.get(source.node)
                line = idle.pop() if idle else None
            if line is None:
                return Line(source, within)
            if line.is_fresh():
                return line
            line.close()


_LOCK = threading.Lock()


def lines_of(client: Any) -> Lines:
    # Kept at the client itself, so that they go with it: the settings of a cluster's connections refer back to it.
    with _LOCK:
        lines: Optional[Lines] = getattr(client, "_dsync_lines", None)
        if lines is None:
            lines = client._dsync_lines = Lines()
        return lines

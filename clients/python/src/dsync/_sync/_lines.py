"""Connections beside the client's pool; see :mod:`dsync._source` for why."""

from __future__ import annotations

import os
import selectors
import threading
import time
from typing import Any, Dict, List, Optional

from .. import _route
from .._protocol import Words
from .._route import Finding, Result, To, route_of
from .._source import Source
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
        self._is_connected = False
        self._is_closed = False

    def connect(self) -> None:
        if self._is_closed:
            # It would be without what was subscribed to.
            raise ConnectionError("the connection was closed")
        try:
            if self.source.told is None:
                self._connection.connect()
            else:
                self._connection.connect_to(self.source.told)
        except BaseException:
            self.close()
            raise
        self._is_connected = True

    def send(self, words: Words) -> None:
        """Connects if there is no connection yet, and sends."""
        if self._is_closed or not self._is_connected:
            self.connect()
        try:
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

    def ask(self, words: Words, within: float, is_asking: bool = False) -> Any:
        deadline = time.monotonic() + within
        if is_asking:
            self._ask(["ASKING"], within, deadline)
        return self._ask(words, within, deadline)

    def _ask(self, words: Words, within: float, deadline: float) -> Any:
        self.send(words)
        reply = self.receive(max(0.0, deadline - time.monotonic()))
        if reply is NOTHING:
            self.close()
            raise self.source.no_answer(within)
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
    """The connections of one client that have no work at the moment, and where they lead. Thread-safe."""

    def __init__(self, client: Any) -> None:
        self.route = route_of(client)
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: Dict[str, List[Line]] = {}

    def ask(self, key: Any, words: Words, within: float) -> Any:
        """Sends a command that does not block to the server that has the key."""
        return self._perform(_route.ask(self.route, key, words, within))

    def find(self, key: Any, within: float) -> Source:
        """Returns which server has the key."""
        return self._perform(_route.find(self.route, key, within))

    def _perform(self, finding: Finding[Result]) -> Result:
        try:
            step = next(finding)
            while True:
                try:
                    reply = self._ask(step)
                except Exception as error:
                    step = finding.throw(error)
                else:
                    step = finding.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _ask(self, step: To) -> Any:
        line = self._borrow(step.source, step.within)
        reply = line.ask(step.words, step.within, step.is_asking)
        with self._lock:
            idle = self._idle.setdefault(step.source.name, [])
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
                idle = self._idle.get(source.name)
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
            lines = client._dsync_lines = Lines(client)
        return lines

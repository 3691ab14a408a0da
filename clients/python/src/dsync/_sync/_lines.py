"""Connections beside the client's pool; see :mod:`dsync._source` for why."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from typing import Any, Dict, List, Optional

from .._confirm import Part, commit, patience
from .._protocol import Words
from .._retry import doubt, is_reply
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
    """One connection. It is closed by all errors but replies, for nobody knows then what would be read next."""

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

    def send(self, *commands: Words) -> None:
        """Connects if there is no connection yet, and sends, in one write."""
        if self._is_closed or not self._is_connected:
            self.connect()
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
        except BaseException:
            self.close()
            raise

    def receive(self, within: float) -> Any:
        """Returns the next reply, or :data:`NOTHING` if none comes in so many seconds."""
        try:
            return self._connection.read_response() if self._comes(within) else NOTHING
        except BaseException as error:
            if not is_reply(error):
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

    def ask(self, parts: List[Part], within: float) -> None:
        """Sends the commands of all parts, and has those replies confirmed that have to be."""
        within += patience(part.confirm for part in parts)
        while open_ := [part for part in parts if part.is_open]:
            round_ = commit(open_)
            commands = next(round_)
            with contextlib.suppress(StopIteration):
                while True:
                    commands = round_.send(self._exchange(commands, within))

    def _exchange(self, commands: List[Words], within: float) -> List[Any]:
        deadline = time.monotonic() + within
        if not self._is_connected:
            self.connect()
        try:
            self.send(*commands)
            return [self._reply(deadline, within) for _ in commands]
        except Exception as error:
            doubt(error)
            raise

    def _reply(self, deadline: float, within: float) -> Any:
        try:
            reply = self.receive(max(0.0, deadline - time.monotonic()))
        except Exception as error:
            if not is_reply(error):
                raise
            return error
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

    def perform(self, finding: Finding[Result]) -> Result:
        """Performs a script of :mod:`dsync._route`."""
        try:
            step = next(finding)
            while True:
                try:
                    self._ask(step)
                except Exception as error:
                    step = finding.throw(error)
                else:
                    step = next(finding)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _ask(self, step: To) -> None:
        line = self._borrow(step.source, step.within)
        line.ask(step.parts, step.within)
        with self._lock:
            idle = self._idle.setdefault(step.source.name, [])
            if len(idle) < KEPT_IDLE:
                idle.append(line)
                return
        line.close()

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

"""The runner's side of a driver: a program in one of the languages that takes orders, one JSON object a line."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from concurrent.futures import Future
from typing import Any

#: How long an answer may take that must come.
SOON = 60.0

Answer = dict[str, Any]


class Cannot(Exception):
    """The language or the library does not have the case."""


class NotConnected(Exception):
    """The library refuses to connect, and says why."""


class Driver:
    """One process, which works through one client. Orders run side by side; each has one answer."""

    def __init__(self, command: list[str], mode: str, ports: list[int], **words: Any) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Answer]] = {}
        self._orders: dict[int, str] = {}
        self._has_ended = False
        self._said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._keep_stderr, daemon=True).start()
        connected = self.ask("connect", mode=mode, ports=ports, **words)
        if connected["is"] == "cannot":
            self.kill()
            raise Cannot(connected["why"])
        if connected["is"] == "error":
            self.kill()
            raise NotConnected(connected["text"])
        assert connected["is"] == "connected", connected

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, order: str, **words: Any) -> Future[Answer]:
        """Gives an order, and returns what will be its answer."""
        number = next(self._numbers)
        answer: Future[Answer] = Future()
        self._pending[number], self._orders[number] = answer, f"{order} {words}"
        assert not self._has_ended, "the driver has ended"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": order, **words}) + "\n")
        self._process.stdin.flush()
        return answer

    def ask(self, order: str, *, within: float = SOON, **words: Any) -> Answer:
        """Gives an order, and waits for its answer."""
        return self.begin(order, **words).result(timeout=within)

    def unanswered(self) -> list[str]:
        """The orders whose answers have not come."""
        return list(self._orders.values())

    def kill(self) -> None:
        """Ends the process as kill -9 does."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """The last lines of its standard error."""
        return "".join(self._said[-20:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._orders.pop(answer["id"])
            self._pending.pop(answer["id"]).set_result(answer)
        self._has_ended = True
        for left in list(self._pending.values()):
            left.set_exception(AssertionError(f"the driver has ended:\n{self.said()}"))

    def _keep_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)

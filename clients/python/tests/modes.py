"""The ways to use the package that its README promises, behind one face: a story is told once, and runs in all of them.

An asyncio client lives in a loop of its own thread, so that a story can be told with plain calls and threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
from typing import Any, Iterator, NamedTuple, Optional

import pytest
from servers import Cluster, Server, Watched

import dsync
import dsync.aio

#: Seconds for anything that one call does: much longer than it takes.
LONGEST_CALL = 100.0


class Mode(NamedTuple):
    library: str
    is_async: bool
    topology: str

    def __str__(self) -> str:
        return f"{self.library}-py {'asyncio' if self.is_async else 'sync'} {self.topology}"

    @property
    def errors(self) -> Any:
        return importlib.import_module(f"{self.library}.exceptions")

    def start(self) -> Any:
        """Starts the servers."""
        return {"one": Server, "sentinel": Watched, "cluster": Cluster}[self.topology]()

    def connect(self, servers: Any) -> Any:
        """Returns a client of these servers, as a user makes it."""
        module = f"{self.library}.asyncio" if self.is_async else self.library
        if self.topology == "sentinel":
            guards: Any = importlib.import_module(f"{module}.sentinel")
            return guards.Sentinel([("127.0.0.1", servers.sentinel.port)]).master_for("locks")
        is_cluster = self.topology == "cluster"
        kind = getattr(importlib.import_module(module), self.library.capitalize() + "Cluster" * is_cluster)
        return kind(host="127.0.0.1", port=servers.nodes[1].port if is_cluster else servers.port)


def modes(*topologies: str) -> pytest.MarkDecorator:
    """Runs a story in all modes with these topologies."""
    found = [
        Mode(library, is_async, topology)
        for topology in topologies
        for library in ("redis", "valkey")
        for is_async in (False, True)
    ]
    return pytest.mark.parametrize("mode", found, ids=str)


class User:
    """A client, and the package's functions for it, all of them with plain calls."""

    def __init__(self, mode: Mode, servers: Any) -> None:
        self._is_async = mode.is_async
        self._package: Any = dsync.aio if mode.is_async else dsync
        if mode.is_async:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        self.client = self.do(self._connected(mode, servers)) if mode.is_async else mode.connect(servers)

    @staticmethod
    async def _connected(mode: Mode, servers: Any) -> Any:
        return mode.connect(servers)

    def do(self, result: Any) -> Any:
        """Returns the result of a call, which an asyncio client has to await."""
        if not self._is_async:
            return result
        return asyncio.run_coroutine_threadsafe(result, self._loop).result(LONGEST_CALL)

    @contextlib.contextmanager
    def block(self, claim: Any) -> Iterator[Any]:
        if not self._is_async:
            with claim as held:
                yield held
            return
        stack = contextlib.AsyncExitStack()

        async def leave(error: Optional[BaseException]) -> None:
            await stack.__aexit__(type(error) if error else None, error, None)

        held = self.do(stack.enter_async_context(claim))
        try:
            yield held
        except BaseException as error:
            self.do(leave(error))
            raise
        else:
            self.do(leave(None))

    def lock(self, key: str, **options: Any) -> Any:
        return self._package.lock(self.client, key, **options)

    def semaphore(self, key: str, **options: Any) -> Any:
        return self._package.semaphore(self.client, key, **options)

    def group(self, key: str) -> Any:
        return self._package.group(self.client, key)

    def begin(self, key: str) -> Any:
        return self._package.once.begin(self.client, key)

    def close(self) -> None:
        if self._is_async:
            self.do(self.client.aclose())
            self.do(self._loop.shutdown_asyncgens())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LONGEST_CALL)
            self._loop.close()
        else:
            self.client.close()


class Queue:
    """Threads that take a hold one after the other, and what they were served."""

    def __init__(self) -> None:
        self.served: list[int] = []
        self._threads: list[threading.Thread] = []

    def add(self, user: User, claim: Any) -> None:
        number = len(self._threads)

        def work() -> None:
            hold = user.do(claim.acquire())
            self.served.append(number)
            user.do(hold.release())

        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    def join(self, within: float = LONGEST_CALL) -> None:
        for thread in self._threads:
            thread.join(within)
            assert not thread.is_alive(), f"of {len(self._threads)} that wait, only {self.served} were served"

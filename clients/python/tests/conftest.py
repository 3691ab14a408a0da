import time
from types import SimpleNamespace
from typing import Any, AsyncIterator, Callable, Iterator

import pytest
import redis.asyncio
from servers import Proxy, Server
from story import Story


@pytest.fixture(scope="session")
def shared() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(shared: Server) -> Server:
    """A server without keys, which the test leaves running."""
    shared.client().flushall()
    return shared


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may stop and kill."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns what happens to the clock that goes on when the machine is suspended; all waits stand still meanwhile."""
    ahead = [0.0]
    clock = SimpleNamespace(clock_gettime=lambda _: time.monotonic() + ahead[0])
    monkeypatch.setattr("dsync._lease.time", clock)
    monkeypatch.setattr("dsync._lease._CLOCK", "boottime")

    def suspend(seconds: float) -> None:
        ahead[0] += seconds

    return suspend


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


@pytest.fixture
def client(server: Server) -> Any:
    return server.client()


@pytest.fixture(params=[True, False], ids=["own connection", "no connection"])
def own_connection(request: Any) -> bool:
    """Both ways to wait."""
    return bool(request.param)


@pytest.fixture
async def aclient(server: Server) -> AsyncIterator[Any]:
    client = redis.asyncio.Redis(port=server.port)
    yield client
    await client.aclose()

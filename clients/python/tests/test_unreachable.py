"""Servers that are dead or stand still: what a try takes, and what the errors say. Rows tell it of one server."""

import contextlib
import socket
import time
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
import redis
from modes import Mode, User, modes
from servers import Server
from test_modes import started

from dsync import _times, lock


def expect_a_short_try(mode: Mode, user: User, key: str, ports: Any) -> None:
    for own_connection in (True, False):
        begun = time.monotonic()
        with pytest.raises((mode.errors.ConnectionError, mode.errors.TimeoutError)) as raised:
            user.do(user.lock(key, wait=0, own_connection=own_connection).acquire())
        assert time.monotonic() - begun < _times.TRY_WITHIN + 1.5
        assert repr(key) in str(raised.value)
        assert any(f"127.0.0.1:{port}" in str(raised.value) for port in ports)


@modes("sentinel", "cluster")
@pytest.mark.parametrize("trouble", ["kill", "stop"])
def test_try_is_short_and_its_error_names_server_and_key(mode: Mode, trouble: str) -> None:
    """A dead port was named by nobody, and a client that asks its Sentinel or its nodes first waited for ever."""
    with started(mode) as (servers, user):
        assert user.do(user.do(user.lock("jobs:1", wait=0).acquire()).release())
        getattr(servers, trouble)()
        expect_a_short_try(mode, user, "jobs:1", servers.ports())


@contextlib.contextmanager
def full_port() -> Iterator[int]:
    """Yields a port that answers no attempt to connect: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@modes("one")
def test_try_of_a_port_that_does_not_answer_is_short(mode: Mode) -> None:
    with full_port() as port, contextlib.ExitStack() as stack:
        user = User(mode, SimpleNamespace(port=port))
        stack.callback(user.close)
        expect_a_short_try(mode, user, "jobs:1", [port])


def test_errors_of_waits_and_renewals_name_server_and_key(own_server: Server) -> None:
    client = own_server.client()
    hold = lock(client, "jobs:1", lease=1).acquire()
    own_server.kill()
    for call in (hold.renew, lock(client, "jobs:1", wait=0.5).acquire, hold.release):
        with pytest.raises(redis.ConnectionError, match=f"'jobs:1': .*:{own_server.port}"):
            call()

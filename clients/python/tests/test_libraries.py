"""valkey-py, and the classes for ``lock_class=``."""

import threading
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.exceptions
import valkey
import valkey.asyncio
import valkey.exceptions
from servers import Proxy, Server, eventually
from test_lock import holders, waiters

import dsync
import dsync.aio.redis_lock
import dsync.aio.valkey_lock
import dsync.redis_lock
import dsync.valkey_lock
from dsync import aio, lock


def test_valkey_py_is_served(server: Server, own_connection: bool) -> None:
    client = valkey.Valkey(port=server.port, socket_timeout=0.2)
    waiting = threading.Thread(target=lambda: lock(client, "k", own_connection=own_connection).acquire().release())
    with lock(client, "k", owner="web-1"):
        with pytest.raises(dsync.NotAcquired, match="web-1"):
            lock(client, "k", wait=0.3, own_connection=own_connection).acquire()
        waiting.start()
        eventually(lambda: waiters(server.client()), "a waiter")
    waiting.join(30)
    assert not waiting.is_alive()


async def test_asyncio_of_valkey_py_is_served(server: Server, own_connection: bool) -> None:
    client = valkey.asyncio.Valkey(port=server.port)
    async with aio.lock(client, "k", owner="web-1"):
        with pytest.raises(dsync.NotAcquired, match="web-1"):
            await aio.lock(client, "k", wait=0.3, own_connection=own_connection).acquire()
    await client.aclose()


def test_errors_are_those_of_the_library(own_server: Server) -> None:
    own_server.kill()
    with pytest.raises(valkey.exceptions.ConnectionError):
        lock(valkey.Valkey(port=own_server.port), "k", retry_for=0.1).acquire()


@pytest.mark.parametrize(
    ("client_class", "lock_class", "errors"),
    [
        (redis.Redis, dsync.redis_lock.Lock, redis.exceptions),
        (valkey.Valkey, dsync.valkey_lock.Lock, valkey.exceptions),
    ],
)
def test_lock_class_takes_the_place_of_the_librarys_own(
    server: Server, client_class: Any, lock_class: Any, errors: Any
) -> None:
    client = client_class(port=server.port)
    with client.lock("k", timeout=20, lock_class=lock_class) as held:
        assert held.fence > 0
        assert held.owned()
        assert held.locked()
        assert not client.lock("k", blocking=False, lock_class=lock_class).acquire()
        assert not client.lock("k", blocking_timeout=0.2, lock_class=lock_class).acquire()
        assert held.extend(20)
        assert 30_000 < client.execute_command("DLOCK.CHECK", "k", held.local.token) <= 40_000
        assert held.reacquire()
        assert 10_000 < client.execute_command("DLOCK.CHECK", "k", held.local.token) <= 20_000
    assert held.fence is None
    assert holders(server.client(), "k") == 0
    with pytest.raises(errors.LockError):
        held.release()


def test_lock_class_sets_the_lease_where_its_script_is_replaced(client: Any) -> None:
    """redbeat extends its lock by its whole time at each turn: after five of them nobody else led for three minutes."""
    held = client.lock("k", timeout=30, lock_class=dsync.redis_lock.Lock)
    held.lua_extend = client.register_script("return redis.call('pexpire', KEYS[1], ARGV[2])")
    assert held.acquire()
    for _ in range(5):
        assert held.extend(30)
    assert client.execute_command("DLOCK.CHECK", "k", held.local.token) <= 30_000


def test_lock_class_grants_a_token_once(client: Any) -> None:
    """Two objects with one token: the server took the second request for the first, and both had the lock."""
    one, two = (client.lock("k", timeout=30, lock_class=dsync.redis_lock.Lock, thread_local=False) for _ in range(2))
    assert one.acquire(token="task-7")
    assert not two.acquire(blocking=False, token="task-7")
    assert not two.acquire(blocking_timeout=0.3, token="task-7")
    waiting = threading.Thread(target=two.acquire, kwargs={"token": "task-7"})
    waiting.start()
    one.release()
    waiting.join(30)
    assert two.owned()


async def test_lock_class_of_asyncio_grants_a_token_once(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    one, two = (client.lock("k", timeout=30, lock_class=dsync.aio.redis_lock.Lock) for _ in range(2))
    assert await one.acquire(token="task-7")
    assert not await two.acquire(blocking=False, token="task-7")
    assert not await two.acquire(blocking_timeout=0.3, token="task-7")
    await one.release()
    assert await two.acquire(token="task-7")
    await client.aclose()


def test_lock_class_takes_a_release_whose_answer_was_lost_for_one(client: Any, proxy: Proxy) -> None:
    """The second request found no hold, because the first had ended it: LockNotOwnedError."""
    with redis.Redis(port=proxy.port).lock("k", timeout=30, lock_class=dsync.redis_lock.Lock):
        proxy.cut_answers()
        threading.Timer(0.5, proxy.mend).start()
    assert holders(client, "k") == 0


def test_lock_class_waits_in_the_queue(client: Any) -> None:
    first = client.lock("k", timeout=30, lock_class=dsync.redis_lock.Lock)
    assert first.acquire()
    second = client.lock("k", timeout=30, lock_class=dsync.redis_lock.Lock, thread_local=False)
    waiting = threading.Thread(target=second.acquire)
    waiting.start()
    eventually(lambda: waiters(client), "a waiter")
    first.release()
    waiting.join(30)
    assert second.owned()


def test_lock_class_does_not_mistake_an_old_lock_for_its_own(client: Any) -> None:
    client.set("k", "token of a lock that was made with SET")
    held = client.lock("k", timeout=30, lock_class=dsync.redis_lock.Lock)
    assert held.locked()
    with pytest.raises(redis.exceptions.LockError, match="no dsync lock"):
        held.acquire()
    client.delete("k")
    assert held.acquire()
    client.set("k", "somebody's value")
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        held.release()


@pytest.mark.parametrize(
    ("client_class", "lock_class", "errors"),
    [
        (redis.asyncio.Redis, dsync.aio.redis_lock.Lock, redis.exceptions),
        (valkey.asyncio.Valkey, dsync.aio.valkey_lock.Lock, valkey.exceptions),
    ],
)
async def test_lock_class_of_asyncio(server: Server, client_class: Any, lock_class: Any, errors: Any) -> None:
    client = client_class(port=server.port)
    async with client.lock("k", timeout=20, lock_class=lock_class) as held:
        assert held.fence > 0
        assert await held.owned()
        assert not await client.lock("k", blocking_timeout=0.2, lock_class=lock_class).acquire()
        assert await held.extend(20)
        assert 30_000 < await client.execute_command("DLOCK.CHECK", "k", held.local.token) <= 40_000
    assert holders(server.client(), "k") == 0
    with pytest.raises(errors.LockError):
        await held.release()
    await client.aclose()

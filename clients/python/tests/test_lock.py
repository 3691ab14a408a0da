"""Locks and semaphores of synchronous clients, while all goes well."""

import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
from servers import Server, eventually, until_waiting

import dsync
import dsync.aio
from dsync import all_of, lock, semaphore


def holders(client: Any, key: str, family: str = "DLOCK") -> int:
    info = client.execute_command(f"{family}.INFO", key)
    return 0 if info is None else int(fields(info)["holders"])


def fields(info: Any) -> Any:
    pairs = info.items() if isinstance(info, dict) else zip(info[::2], info[1::2])
    return {name.decode(): value for name, value in pairs}


def waiters(client: Any) -> int:
    return sum(row[3] for row in client.execute_command("DSYNC.CONTENDED"))


def test_lock_is_held_in_its_block_and_free_after_it(client: Any) -> None:
    with lock(client, "k", lease=30) as hold:
        assert hold.fence > 0
        assert 20 < hold.left() <= 28
        assert not hold.lost.is_set()
        assert holders(client, "k") == 1
    assert holders(client, "k") == 0
    assert hold.left() == 0


def test_lock_is_released_when_its_block_raises(client: Any) -> None:
    with pytest.raises(ZeroDivisionError), lock(client, "k"):
        raise ZeroDivisionError
    assert holders(client, "k") == 0


def test_fences_rise_from_hold_to_hold(client: Any) -> None:
    claim = lock(client, "k")
    with claim as first:
        pass
    with claim as second:
        pass
    assert second.fence > first.fence


def test_hold_is_released_once(client: Any) -> None:
    hold = lock(client, "k").acquire()
    assert hold.release()
    with lock(client, "k") as next_hold:
        assert not hold.release()
        assert holders(client, "k") == 1
        assert next_hold.renew()


def test_fifty_threads_are_served_one_at_a_time_and_in_order(server: Server, own_connection: bool) -> None:
    client = server.client()
    inside = 0
    served: list[int] = []

    def work(number: int) -> None:
        nonlocal inside
        with lock(client, "k", own_connection=own_connection):
            inside += 1
            assert inside == 1
            served.append(number)
            time.sleep(0.002)
            inside -= 1

    with lock(client, "k"):
        threads = []
        for number in range(50):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            until_waiting(lambda: waiters(client), number + 1)
    for thread in threads:
        thread.join()
    assert served == list(range(50))


def test_waiting_leaves_the_pool_of_the_client_alone(server: Server) -> None:
    # Time-outs shorter than the wait, and a pool with one connection.
    settings: Any = {"port": server.port, "socket_timeout": 1}
    pool: Any = redis.BlockingConnectionPool(max_connections=1, timeout=0.1, **settings)  # type: ignore[no-untyped-call]
    client = redis.Redis(connection_pool=pool)
    with lock(client, "k", lease=30) as hold:
        waiting = threading.Thread(target=lambda: lock(client, "k").acquire().release())
        waiting.start()
        eventually(lambda: waiters(client), "a waiter")
        time.sleep(1.5)
        assert client.ping()
        assert hold.left() > 0
    waiting.join()


@pytest.mark.parametrize("wait", [0, 0.3])
def test_error_says_who_holds(client: Any, wait: float, own_connection: bool) -> None:
    with lock(client, "k", owner="web-1") as hold, pytest.raises(dsync.NotAcquired) as refused:
        lock(client, "k", wait=wait, own_connection=own_connection).acquire()
    assert "'k' is held by web-1" in str(refused.value)
    (holder,) = refused.value.holders
    assert holder.fence == hold.fence
    assert 25 < holder.lease_left <= 30
    # The request that was given up would be granted now.
    assert holders(client, "k") == 0


def test_error_says_that_the_key_is_paused(client: Any) -> None:
    client.execute_command("DLOCK.PAUSE", "k", 60_000)
    with pytest.raises(dsync.NotAcquired, match="paused"):
        lock(client, "k", wait=0).acquire()


def test_shared_holds_go_together(client: Any) -> None:
    with lock(client, "k", shared=True), lock(client, "k", shared=True):
        assert holders(client, "k") == 2
        with pytest.raises(dsync.NotAcquired):
            lock(client, "k", wait=0).acquire()


def test_grant_that_came_by_waiting_has_its_whole_lease(client: Any, own_connection: bool) -> None:
    first = lock(client, "k").acquire()
    lefts: list[float] = []

    def wait() -> None:
        with lock(client, "k", lease=4, margin=0, own_connection=own_connection) as hold:
            lefts.append(hold.left())

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: waiters(client), "a waiter")
    time.sleep(2)
    first.release()
    waiting.join()
    # Counted from the request, there would be 2 s left of the 4.
    assert lefts[0] > 2.5


def test_one_claim_serves_several_threads(client: Any) -> None:
    claim = semaphore(client, "s", limit=3)
    both_inside = threading.Barrier(3)

    def work() -> None:
        with claim as hold:
            both_inside.wait(10)
            hold.raise_if_lost()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holders(client, "s", "DSEM") == 0


def test_semaphore_grants_its_limit(client: Any) -> None:
    with semaphore(client, "s", limit=3, permits=2):
        with pytest.raises(dsync.NotAcquired):
            semaphore(client, "s", limit=3, permits=2, wait=0).acquire()
        with semaphore(client, "s", limit=3):
            pass


def test_what_the_caller_got_wrong_is_told_at_once(client: Any) -> None:
    with pytest.raises(redis.ResponseError, match="NOLIMIT"):
        semaphore(client, "s").acquire()
    with pytest.raises(redis.ResponseError, match="TOOMANY"):
        semaphore(client, "s", limit=2, permits=3).acquire()
    with pytest.raises(ValueError, match="lease"):
        lock(client, "k", lease=0)
    with pytest.raises(TypeError, match="redis-py or valkey-py"):
        lock(object(), "k").acquire()  # type: ignore[arg-type]


@pytest.mark.parametrize("package", [dsync, dsync.aio])
def test_unknown_option_is_named_with_those_there_are(server: Server, package: Any) -> None:
    """It was a TypeError of a class that no caller knows."""
    client = redis.asyncio.Redis(port=server.port) if package is dsync.aio else server.client()
    calls: list[Any] = [
        lambda **options: package.lock(client, "k", **options),
        lambda **options: package.semaphore(client, "k", limit=1, **options),
        lambda **options: package.group(client, "k").member(**options),
        lambda **options: package.once.begin(client, "k", **options),
        lambda **options: package.once(client, "k", **options),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"no option 'laese', did you mean 'lease'\? The options are .*wait"):
            call(laese=1)
        with pytest.raises(TypeError, match=r"no option 'colour'\. The options are .*on_lost.*\."):
            call(colour=1)
    with pytest.raises(TypeError, match=r"The options are max_attempts, .*forever"):
        package.once.begin(client, "k", colour=1)


def test_several_keys_are_taken_in_the_order_of_their_names(client: Any) -> None:
    tenant, everybody = semaphore(client, "tenant:7", limit=1), lock(client, "all")
    with all_of(tenant, everybody) as (first, second):
        assert (first.key, second.key) == ("tenant:7", "all")
        assert second.fence < first.fence
    assert client.execute_command("DSYNC.HOLDS", 0, "COUNT", 100)[1] == []
    with pytest.raises(ValueError, match="twice"), all_of(tenant, tenant):
        pass


def test_key_that_is_not_granted_gives_the_others_back(client: Any) -> None:
    with lock(client, "b"), pytest.raises(dsync.NotAcquired), all_of(lock(client, "a"), lock(client, "b", wait=0.1)):
        pass
    assert holders(client, "a") == 0


def test_client_that_decodes_replies_is_served(server: Server, own_connection: bool) -> None:
    client = server.client(decode_responses=True)
    with lock(client, "k", owner="web-1"), pytest.raises(dsync.NotAcquired, match="web-1"):
        lock(client, "k", wait=0.2, own_connection=own_connection).acquire()


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_are_served(server: Server, protocol: int, own_connection: bool) -> None:
    client = server.client(protocol=protocol)
    with lock(client, "k", owner="web-1"), pytest.raises(dsync.NotAcquired, match="web-1"):
        lock(client, "k", wait=0.2, own_connection=own_connection).acquire()


def test_turn_of_a_key_of_any_bytes_is_heard(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsync._steps.ASK_AGAIN_AFTER", 4.5)
    key: Any = b"\xff"
    hold = lock(client, key).acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock(client, key, own_connection=False).acquire)
        eventually(lambda: client.execute_command("DSYNC.CONTENDED"), "a waiter")
        eventually(client.pubsub_channels, "a subscription")
        hold.release()
        waiting.result(4).release()


def test_cycle_costs_no_call_of_the_system_beside_its_two_requests(client: Any) -> None:
    """Each read two files for its owner, and changed the time-outs of its connection twelve times."""
    calls: Counter[str] = Counter()

    def count(_: Any, event: str, called: Any) -> None:
        if event == "c_call":
            calls[called.__name__] += 1

    with lock(client, "k"):
        pass
    sys.setprofile(count)
    try:
        with lock(client, "k"):
            pass
    finally:
        sys.setprofile(None)
    names = ("sendall", "poll", "recv", "settimeout", "getpwuid", "gethostname")
    # Whether the connection is fresh, and when the reply comes.
    assert [calls[name] for name in names] == [2, 4, 2, 0, 0, 0]

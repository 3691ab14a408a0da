"""Failovers by the server's own command, and all nodes of a cluster. Rows tell of Sentinel and of moving slots."""

import asyncio
import functools
import threading
import time
from typing import Any, Callable, Iterator

import pytest
import redis
import redis.asyncio
import redis.sentinel
from servers import Cluster, Server, closing, replica_of, until_in_sync, until_primary, until_waiting
from test_lock import waiters

import dsync
from dsync import aio, lock

# The tests of the cluster share one.
in_one_process = pytest.mark.xdist_group("cluster")


def queue_up(client: Any, key: str, count: int, count_waiters: Callable[[], int], **options: Any) -> Any:
    """Starts threads that take the lock one after the other. Returns them, and the list of those that were served."""
    served: list[int] = []

    def work(number: int) -> None:
        with lock(client, key, **options) as hold:
            served.append(number)
            time.sleep(0.05)
            hold.raise_if_lost()

    threads = []
    for number in range(count):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        until_waiting(count_waiters, number + 1)
    return threads, served


def count_waiters_of(node: Server) -> int:
    return waiters(node.client())


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


def test_waiters_survive_a_failover_command() -> None:
    primary = Server()
    replica = replica_of(primary)
    with closing(primary, replica):
        # A client that knows one address: the roles change twice, and it waits until its server is primary again.
        client = primary.client()
        with lock(client, "k", lease=30):
            threads, served = queue_up(client, "k", 3, lambda: waiters(primary.client()))
            for old, new in ((primary, replica), (replica, primary)):
                old.client().execute_command("FAILOVER", "TO", "127.0.0.1", new.port)
                until_primary(new)
                until_in_sync(new)
        join(threads)
        assert served == list(range(3))


@in_one_process
def test_every_node_of_a_cluster_is_served(cluster: Cluster, own_connection: bool) -> None:
    client = cluster.client()
    for node in cluster.nodes[:3]:
        key = cluster.key_on(node)
        with lock(client, key, owner="web-1"):
            with pytest.raises(dsync.NotAcquired, match="web-1"):
                lock(client, key, wait=0.3, own_connection=own_connection).acquire()
            threads, served = queue_up(
                client,
                key,
                3,
                functools.partial(count_waiters_of, node),
                own_connection=own_connection,
            )
        join(threads)
        assert served == [0, 1, 2]


@in_one_process
async def test_asyncio_cluster_is_served(cluster: Cluster, own_connection: bool) -> None:
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)
    served: list[int] = []

    async def work(number: int) -> None:
        async with aio.lock(client, "asyncio", own_connection=own_connection):
            served.append(number)

    count_waiters = functools.partial(count_waiters_of, cluster.owner_of("asyncio"))
    async with aio.lock(client, "asyncio"):
        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await asyncio.get_running_loop().run_in_executor(None, until_waiting, count_waiters, 3)
    await asyncio.gather(*tasks)
    assert sorted(served) == [0, 1, 2]
    await client.aclose()

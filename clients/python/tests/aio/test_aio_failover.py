"""Failovers with asyncio clients."""

import asyncio
from typing import Any, List

import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from servers import Server, closing, eventually, replica_of, until_in_sync, until_primary, until_waiting
from test_lock import waiters

from dsync.aio import lock


async def in_thread(function: Any, *arguments: Any) -> Any:
    """Lets tasks go on while the test waits for the servers."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def test_sentinel_failover_keeps_hold_and_queue(own_connection: bool) -> None:
    primary = await in_thread(Server)
    replica = await in_thread(replica_of, primary)
    sentinel = await in_thread(lambda: Server(sentinel_of=primary.port))
    with closing(primary, replica, sentinel):
        address = ("127.0.0.1", sentinel.port)
        known = redis.sentinel.Sentinel([address])
        await in_thread(eventually, lambda: known.discover_slaves("locks"), "a replica that the sentinel knows")
        guards = redis.asyncio.sentinel.Sentinel([address], socket_timeout=1)
        client = guards.master_for("locks", socket_timeout=None)
        served: List[int] = []

        async def work(number: int) -> None:
            async with lock(client, "k", own_connection=own_connection):
                served.append(number)

        tasks = []
        async with lock(client, "k", lease=20, margin=0) as hold:
            for number in range(3):
                tasks.append(asyncio.create_task(work(number)))
                await in_thread(until_waiting, lambda: waiters(primary.client()), number + 1)
            await in_thread(until_in_sync, primary)
            primary.kill()
            await in_thread(until_primary, replica)
            before = hold._lease.lost_at()
            await in_thread(eventually, lambda: hold._lease.lost_at() > before, "a renewal by the new primary")
        await asyncio.gather(*tasks)
        assert served == [0, 1, 2]
        await client.aclose()
        for guard in guards.sentinels:
            await guard.aclose()

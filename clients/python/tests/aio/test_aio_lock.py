"""Locks, semaphores, groups and work-once keys of asyncio clients, while all goes well."""

import asyncio
import sys
from typing import Any

import pytest
import redis
import redis.asyncio
from servers import Server
from waiting import eventually, holders, waiters

import dsync
from dsync.aio import all_of, group, lock, once, semaphore


async def test_lock_is_held_in_its_block_and_free_after_it(aclient: Any) -> None:
    async with lock(aclient, "k") as hold:
        assert hold.fence > 0
        assert 20 < hold.left() <= 28
        assert await holders(aclient, "k") == 1
    assert await holders(aclient, "k") == 0


async def test_lock_is_released_when_its_block_raises(aclient: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        async with lock(aclient, "k"):
            raise ZeroDivisionError
    assert await holders(aclient, "k") == 0


async def test_fifty_tasks_are_served_one_at_a_time_and_in_order(aclient: Any, own_connection: bool) -> None:
    inside = 0
    served: list[int] = []
    claim = lock(aclient, "k", own_connection=own_connection)

    async def work(number: int) -> None:
        nonlocal inside
        async with claim:
            inside += 1
            assert inside == 1
            served.append(number)
            await asyncio.sleep(0.002)
            inside -= 1

    tasks = []
    async with lock(aclient, "k"):
        for number in range(50):
            tasks.append(asyncio.create_task(work(number)))

            async def all_wait(expected: int = number + 1) -> bool:
                return await waiters(aclient) == expected

            await eventually(all_wait, f"{number + 1} waiters")
    await asyncio.gather(*tasks)
    assert served == list(range(50))


async def test_waiting_without_connection_needs_one_for_all(server: Server) -> None:
    pool = redis.asyncio.BlockingConnectionPool(port=server.port, max_connections=1, timeout=20, client_name="counted")
    client = redis.asyncio.Redis(connection_pool=pool)

    async def work() -> None:
        async with lock(client, "k", own_connection=False):
            pass

    async with lock(client, "k", own_connection=False):
        tasks = [asyncio.create_task(work()) for _ in range(30)]

        async def all_wait() -> bool:
            return await waiters(client) == 30

        await eventually(all_wait, "30 waiters")

        async def few_connections() -> bool:
            # That of the test itself, one for all requests, and one for the announcements.
            return [row["name"] for row in server.client().client_list()].count("counted") == 3

        await eventually(few_connections, "three connections")
        await asyncio.sleep(2)
        assert await few_connections()
    await asyncio.gather(*tasks)
    await pool.disconnect()


async def test_hold_is_renewed_while_the_pool_of_the_client_is_empty(server: Server) -> None:
    """A program's own BLPOP took the only connection of the pool, and the hold was lost."""
    pool = redis.asyncio.BlockingConnectionPool(port=server.port, max_connections=1, timeout=20)
    client: Any = redis.asyncio.Redis(connection_pool=pool)
    popping = asyncio.create_task(client.blpop("nothing", timeout=4))
    async with lock(client, "k", lease=1.5) as hold:
        await popping
        hold.raise_if_lost()
    await pool.disconnect()


@pytest.mark.parametrize("wait", [0, 0.3])
async def test_error_says_who_holds(aclient: Any, wait: float, own_connection: bool) -> None:
    async with lock(aclient, "k", owner="web-1"):
        with pytest.raises(dsync.NotAcquired, match="'k' is held by web-1"):
            await lock(aclient, "k", wait=wait, own_connection=own_connection).acquire()
    assert await holders(aclient, "k") == 0


async def test_several_keys_are_taken_in_the_order_of_their_names(aclient: Any) -> None:
    async with all_of(semaphore(aclient, "tenant:7", limit=1), lock(aclient, "all")) as (first, second):
        assert (first.key, second.key) == ("tenant:7", "all")
        assert second.fence < first.fence
    assert (await aclient.execute_command("DSYNC.HOLDS", 0, "COUNT", 100))[1] == []


async def test_group_is_waited_for_until_all_are_done(aclient: Any) -> None:
    batch = group(aclient, "g")
    assert await batch.expect(3) == 3

    async def work() -> None:
        async with batch.member():
            pass

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    assert await batch.wait(timeout=30) == (3, 0)
    await asyncio.gather(*tasks)
    await batch.expect(1)
    assert await batch.wait(timeout=0.1) is None


async def test_work_is_done_once_and_everybody_gets_its_result(aclient: Any) -> None:
    runs: list[int] = []

    @once(aclient, lambda number: f"report:{number}")
    async def report(number: int) -> Any:
        runs.append(number)
        await asyncio.sleep(0.05)
        return {"file": f"{number}.pdf"}

    assert await asyncio.gather(*(report(7) for _ in range(8))) == [{"file": "7.pdf"}] * 8
    assert runs == [7]


async def test_failed_work_is_handed_on_until_its_attempts_are_used_up(aclient: Any) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="no disk"):
            async with once.begin(aclient, "w", max_attempts=2):
                raise OSError("no disk")
    with pytest.raises(dsync.WorkFailed, match="2 attempts; the last failure: OSError: no disk"):
        async with once.begin(aclient, "w", max_attempts=2):
            pass


async def test_work_is_recorded_with_its_result(aclient: Any) -> None:
    async with once.begin(aclient, "charge:42", forever=True) as run:
        run.result = "ch_7"
    async with once.begin(aclient, "charge:42") as again:
        assert again.is_done
        assert again.result == b"ch_7"


async def test_clients_are_not_mixed_up(aclient: Any, client: Any) -> None:
    with pytest.raises(TypeError, match=r"belongs to dsync, not here"):
        lock(client, "k")
    with pytest.raises(TypeError, match=r"belongs to dsync\.aio, not here"):
        dsync.lock(aclient, "k")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks do not start at once before Python 3.12")
async def test_tasks_may_start_at_once(aclient: Any) -> None:
    loop: Any = asyncio.get_running_loop()
    eager: Any = asyncio
    loop.set_task_factory(eager.eager_task_factory)
    async with lock(aclient, "k", lease=0.6) as hold:
        await asyncio.sleep(1)
        hold.raise_if_lost()

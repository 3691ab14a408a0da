"""Holds that are lost, waits that are given up, and connections that break, with asyncio clients."""

import asyncio
import contextlib
import gc
import logging
import sys
import time
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from servers import Proxy, Server
from test_lock import holders as sync_holders
from waiting import eventually, holders, waiters

import dsync
from dsync._confirm import Part
from dsync.aio import all_of, lock, once
from dsync.aio._tasks import Tasks


async def test_revoked_hold_cancels_its_block(aclient: Any) -> None:
    told: list[Any] = []
    with pytest.raises(dsync.HoldLost, match="revoked"):
        async with lock(aclient, "k", lease=1, on_lost=told.append) as hold:
            await aclient.execute_command("DLOCK.REVOKE", "k", hold.fence)
            await asyncio.sleep(60)
    assert told == [hold]
    # The cancellation was the block's alone: the task goes on.
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("command", ["DEL {}", "DLOCK.REVOKE {} {}", "SET {} value"])
async def test_block_whose_hold_was_gone_raises(aclient: Any, command: str) -> None:
    """Another had held meanwhile: the server said so in its answer to the release, and the block ended in silence."""
    with pytest.raises(dsync.HoldLost, match="revoked or removed"):
        async with lock(aclient, "k", lease=30) as hold:
            await aclient.execute_command(*command.format("k", hold.fence).split())


async def test_renewal_by_hand_that_finds_another_type_tells_the_loss(aclient: Any) -> None:
    hold = await lock(aclient, "k").acquire()
    await aclient.set("k", "value")
    assert not await hold.renew()
    assert hold.lost.is_set()


async def test_several_keys_are_not_entered_when_the_first_is_lost_meanwhile(aclient: Any) -> None:
    blocker = await lock(aclient, "b").acquire()

    async def waits() -> bool:
        return await waiters(aclient) == 1

    async def lose_the_first() -> None:
        await eventually(waits, "a waiter")
        await aclient.delete("a")

    losing = asyncio.create_task(lose_the_first())
    with pytest.raises(dsync.HoldLost, match="'a'"):
        async with all_of(lock(aclient, "a", lease=1), lock(aclient, "b")):
            pytest.fail("entered")
    await losing
    assert await blocker.release()
    assert await holders(aclient, "b") == 0


async def test_loss_is_told_to_who_keeps_only_what_tells_it(aclient: Any) -> None:
    """The usual election of a leader: the hold was collected, its renewal ended, and two led."""
    told: list[Any] = []
    lost = (await lock(aclient, "k", lease=2, on_lost=told.append).acquire()).lost
    hold = await lock(aclient, "k").acquire()
    assert lost.is_set()
    assert [one.fence < hold.fence for one in told] == [True]


async def test_loss_is_told_of_a_hold_that_another_thread_collects(aclient: Any) -> None:
    lost = []
    hold = await lock(aclient, "k", lease=2).acquire()
    lost.append(hold.lost)
    cycle: list[Any] = [hold]
    cycle.append(cycle)
    del hold, cycle
    await asyncio.to_thread(gc.collect)
    await asyncio.wait_for(lost[0].wait(), 20)


async def test_loss_by_a_suspension_is_told_when_the_machine_goes_on(
    aclient: Any, suspend: Callable[[float], None]
) -> None:
    """The wait for the end of the lease stood still with the machine: the loss was told 19 s after it went on."""
    with pytest.raises(dsync.HoldLost):
        async with lock(aclient, "k", lease=60):
            await aclient.delete("k")
            suspend(120)
            await asyncio.sleep(10)
            pytest.fail("the work goes on")


async def test_suspension_that_is_shorter_than_the_lease_is_followed_by_a_renewal(
    aclient: Any, suspend: Callable[[float], None]
) -> None:
    async with lock(aclient, "k", lease=60) as hold:
        # Lets the wait for the renewal begin.
        await asyncio.sleep(0.2)
        suspend(25)
        before = hold._lease.lost_at()

        async def renewed() -> bool:
            return hold._lease.lost_at() > before

        await asyncio.wait_for(eventually(renewed, "a renewal"), 10)


async def test_block_without_a_name_for_its_hold_keeps_it(aclient: Any) -> None:
    async with lock(aclient, "k", lease=1):
        await asyncio.sleep(2)
        assert await holders(aclient, "k") == 1


async def test_callback_that_raises_does_not_keep_the_block_from_its_end(aclient: Any, caplog: Any) -> None:
    """The task was cancelled after on_lost only, and so not at all: its work went on behind the next holder's back."""
    with pytest.raises(dsync.HoldLost, match="revoked"):
        async with lock(aclient, "k", lease=1, on_lost=lambda _: 1 / 0) as hold:
            await aclient.execute_command("DLOCK.REVOKE", "k", hold.fence)
            await asyncio.sleep(10)
            pytest.fail("the work goes on")
    assert "ZeroDivisionError" in caplog.text


async def test_callback_that_is_a_coroutine_is_awaited(aclient: Any, caplog: Any) -> None:
    told: list[Any] = []

    async def tell(hold: Any) -> None:
        await asyncio.sleep(0)
        told.append(hold)
        raise OSError("no mail")

    with pytest.raises(dsync.HoldLost):
        async with lock(aclient, "k", lease=1, on_lost=tell) as hold:
            await aclient.execute_command("DLOCK.REVOKE", "k", hold.fence)
            await asyncio.sleep(60)
    await asyncio.sleep(0.05)
    assert told == [hold]
    assert "no mail" in caplog.text


async def test_loss_is_told_when_the_block_swallows_its_cancellation(aclient: Any) -> None:
    with pytest.raises(dsync.HoldLost):
        async with lock(aclient, "k", lease=1) as hold:
            await aclient.execute_command("DLOCK.REVOKE", "k", hold.fence)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
    await asyncio.sleep(0.01)


async def test_renewal_by_hand_tells_the_loss_without_cancelling(aclient: Any) -> None:
    with pytest.raises(dsync.HoldLost):
        async with lock(aclient, "k") as hold:
            await aclient.execute_command("DLOCK.REVOKE", "k", hold.fence)
            assert not await hold.renew()
            await asyncio.sleep(0.01)
            hold.raise_if_lost()


async def test_cancellation_by_the_caller_stays_one(aclient: Any) -> None:
    async def work() -> None:
        async with lock(aclient, "k"):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())

    async def held() -> bool:
        return await holders(aclient, "k") == 1

    await eventually(held, "a hold")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await holders(aclient, "k") == 0


async def test_block_is_cancelled_when_the_server_stands_still(own_server: Server) -> None:
    # The client's own time-outs are the worst: none at all.
    client = redis.asyncio.Redis(port=own_server.port, socket_timeout=None)
    loop = asyncio.get_running_loop()
    loop.call_later(60, own_server.go_on)
    with pytest.raises(dsync.HoldLost, match="no renewal was answered in time"):
        async with lock(client, "k", lease=3):
            own_server.stop()
            await asyncio.sleep(60)
    own_server.go_on()
    await client.aclose()


async def test_block_is_cancelled_when_the_network_is_cut(server: Server, proxy: Proxy) -> None:
    client = redis.asyncio.Redis(port=proxy.port, socket_timeout=None)
    started = time.monotonic()
    with pytest.raises(dsync.HoldLost):
        async with lock(client, "k", lease=6, margin=3):
            proxy.cut()
            try:
                await asyncio.sleep(60)
            finally:
                # The server still keeps the lock for the hold: its lease ends after the block was cancelled.
                assert sync_holders(server.client(), "k") == 1
    assert time.monotonic() - started < 30
    await client.aclose()


async def test_hold_survives_a_cut_that_is_shorter_than_its_lease(server: Server, proxy: Proxy) -> None:
    client = redis.asyncio.Redis(port=proxy.port, socket_timeout=None)
    async with lock(client, "k", lease=9) as hold:
        proxy.cut()
        await asyncio.sleep(3.5)
        proxy.mend()
        before = hold._lease.lost_at()

        async def renewed() -> bool:
            return hold._lease.lost_at() > before

        await eventually(renewed, "a renewal over a new connection")
    await client.aclose()


async def test_waiter_survives_the_restart_of_the_server(own_server: Server, own_connection: bool) -> None:
    client = redis.asyncio.Redis(port=own_server.port)
    await lock(client, "k", lease=2).acquire()
    waiting = asyncio.create_task(lock(client, "k", own_connection=own_connection).acquire())

    async def waits() -> bool:
        return await waiters(client) == 1

    await eventually(waits, "a waiter")
    own_server.kill()
    own_server.start()
    hold = await asyncio.wait_for(waiting, 30)
    assert await hold.release()
    await client.aclose()


async def test_cancelled_work_counts_as_no_attempt(aclient: Any) -> None:
    async def work() -> None:
        async with once.begin(aclient, "w"):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())

    async def runs() -> bool:
        return await holders(aclient, "w", "DONCE") == 1

    await eventually(runs, "a run")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with once.begin(aclient, "w", wait=0) as run:
        assert run.attempt == 1


async def test_lost_work_is_cancelled_and_counts_as_an_attempt(aclient: Any) -> None:
    with pytest.raises(dsync.HoldLost):
        async with once.begin(aclient, "w", lease=1) as run:
            assert run.hold is not None
            await aclient.execute_command("DONCE.REVOKE", "w", run.hold.fence)
            await asyncio.sleep(60)
    async with once.begin(aclient, "w", wait=0) as again:
        assert again.attempt == 2


async def test_server_out_of_reach_raises_the_error_of_the_client(own_server: Server) -> None:
    own_server.kill()
    client = redis.asyncio.Redis(port=own_server.port)
    for claim in (lock(client, "k", wait=0), lock(client, "k", wait=0.3), lock(client, "k", retry_for=0.3)):
        with pytest.raises(redis.ConnectionError):
            await claim.acquire()
    await client.aclose()


async def test_release_that_finds_no_server_is_no_error_of_the_block(own_server: Server, caplog: Any) -> None:
    client = redis.asyncio.Redis(port=own_server.port)
    with caplog.at_level(logging.WARNING, "dsync"):
        async with lock(client, "k", lease=2):
            own_server.kill()
    assert "could not be released" in caplog.text
    await client.aclose()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions do not count cancellations")
async def test_cancellation_from_elsewhere_wins_over_the_loss(aclient: Any) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with lock(aclient, "k", lease=1, on_lost=lambda _: task.cancel()) as hold:
            await aclient.execute_command("DLOCK.REVOKE", "k", hold.fence)
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await inside.wait()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_subscription_that_is_not_confirmed_ends_its_connection(own_server: Server) -> None:
    """The connection to a server that stood still was kept, and the next ones subscribed there, too."""
    client = redis.asyncio.Redis(port=own_server.port)
    tasks = Tasks.of(client)
    source = await tasks.find("k", 5)
    first = await tasks.watch(source, b"a")
    unheard = tasks._listeners[source.name]
    own_server.stop()
    with pytest.raises(redis.TimeoutError):
        await tasks.watch(source, b"b")
    own_server.go_on()
    await (await tasks.watch(source, b"b")).end()
    assert tasks._listeners[source.name] is not unheard
    with pytest.raises(redis.ConnectionError, match="not heard"):
        await first.wait(30)
    await first.end()
    await client.aclose()


# What earlier tests have left behind in the libraries is collected here, too.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_connections_go_with_their_client(server: Server) -> None:
    client: Any = redis.asyncio.Redis(port=server.port, client_name="goes")
    async with lock(client, "k"):
        pass

    def connected() -> int:
        return [row["name"] for row in server.client().client_list()].count("goes")

    assert connected() == 1
    await client.aclose()
    del client
    gc.collect()

    async def is_gone() -> bool:
        return connected() == 0

    await eventually(is_gone, "no connection")


async def test_request_that_is_given_up_leaves_the_others_their_replies(aclient: Any) -> None:
    """All requests go over one connection: a reply that nobody waits for any more is skipped."""
    tasks = Tasks.of(aclient)

    async def ask(*words: str) -> Any:
        return await tasks.ask(words[1], Part([[*words]]), 10)

    await aclient.set("a", "1")
    for _ in range(50):
        echoes = [asyncio.create_task(ask("ECHO", str(number))) for number in range(20)]
        await asyncio.sleep(0)
        for echo in echoes[::3]:
            echo.cancel()
        replies = await asyncio.gather(*echoes, return_exceptions=True)
        for number, reply in enumerate(replies):
            assert isinstance(reply, asyncio.CancelledError if number % 3 == 0 else bytes)
            assert number % 3 == 0 or reply == str(number).encode()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await ask("LLEN", "a")
    assert await ask("ECHO", "x") == b"x"


async def test_connection_that_the_server_has_closed_is_made_anew(own_server: Server) -> None:
    client = redis.asyncio.Redis(port=own_server.port)
    hold = await lock(client, "k").acquire()
    own_server.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
    await asyncio.sleep(0.2)
    assert await hold.renew()
    await hold.release()
    await client.aclose()

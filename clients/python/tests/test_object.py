"""What a claim tells without taking anything, claims as decorators, and locks that their holder takes again."""

import asyncio
import gc
import re
import threading
from typing import Any

import pytest
import redis.asyncio
from modes import Mode, modes
from servers import Server, eventually
from test_lock import holders, waiters
from test_modes import started

import dsync
from dsync import aio, lock


@modes("one")
def test_claim_tells_who_holds_and_what_is_free(mode: Mode) -> None:
    """A row tells `locked` of a lock and of a full semaphore."""
    with started(mode) as (_, user):
        claim = user.semaphore("s", limit=3, permits=2, owner="web-1")
        assert (user.do(claim.available()), user.do(claim.holders())) == (3, [])
        hold = user.do(claim.acquire())
        assert user.do(claim.available()) == 1
        assert [(holder.owner, holder.fence) for holder in user.do(claim.holders())] == [("web-1", hold.fence)]
        # One permit is free, which is too few.
        assert user.do(claim.locked())
        assert not user.do(user.semaphore("s").locked())
        assert user.do(user.semaphore("new").available()) is None
        with user.block(user.group("g").member(owner="member")):
            assert [holder.owner for holder in user.do(user.group("g").member().holders())] == ["member"]
        for number in range(15):
            user.do(user.semaphore("many", limit=20, owner=str(number)).acquire())
        assert len(user.do(user.semaphore("many").holders())) == 15


def test_each_call_of_a_decorated_function_is_a_block(client: Any) -> None:
    @lock(client, "k", wait=0)
    def nightly(part: int, *, inner: bool = False) -> int:
        """Does it."""
        assert holders(client, "k") == 1
        return nightly(part) if inner else part

    assert nightly(7) == 7
    assert holders(client, "k") == 0
    assert (nightly.__name__, nightly.__doc__) == ("nightly", "Does it.")
    with pytest.raises(dsync.NotAcquired):
        nightly(7, inner=True)
    with pytest.raises(TypeError, match=r"belongs to dsync\.aio"):

        @lock(client, "k")
        async def never() -> None: ...


async def test_each_call_of_a_decorated_coroutine_is_a_block(aclient: Any, client: Any) -> None:
    active: list[int] = []

    @aio.lock(aclient, "k")
    async def nightly(part: int) -> int:
        active.append(part)
        assert len(active) == 1
        await asyncio.sleep(0.01)
        active.remove(part)
        return part

    assert await asyncio.gather(*map(nightly, range(5))) == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match="belongs to dsync"):

        @aio.lock(aclient, "k")
        def never() -> None: ...


def test_reentrant_lock_ends_with_its_outermost_block(client: Any) -> None:
    outer = lock(client, "k", reentrant=True, lease=60)
    with outer as hold:
        # Also by another object, as in another function of the program.
        with lock(client, "k", reentrant=True) as again:
            assert again is hold
            with outer:
                pass
            by_hand = outer.acquire()
            assert by_hand.release()
        assert hold.left() > 0
        assert holders(client, "k") == 1
        with pytest.raises(dsync.NotAcquired):
            lock(client, "k", wait=0).acquire()
    assert holders(client, "k") == 0
    with outer as new:
        assert new.fence > hold.fence
    with pytest.raises(ValueError, match="shared"):
        lock(client, "k", shared=True, reentrant=True)


def test_reentrant_lock_keeps_other_threads_out(client: Any) -> None:
    claim = lock(client, "k", reentrant=True)
    served: list[bool] = []
    with claim:
        thread = threading.Thread(target=lambda: served.append(claim.acquire().release()))
        thread.start()
        eventually(lambda: waiters(client) == 1, "a waiter")
        assert not served
    thread.join()
    assert served == [True]


def test_reentrant_lock_that_is_lost_is_not_taken_again(client: Any) -> None:
    claim = lock(client, "k", reentrant=True, lease=60)
    with pytest.raises(dsync.HoldLost), claim as hold:
        client.execute_command("DLOCK.REVOKE", "k", hold.fence)
        assert not hold.renew()
        with claim as new:
            assert new is not hold
            assert holders(client, "k") == 1
        assert holders(client, "k") == 0


# What earlier tests have left behind in the libraries is collected here, too.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_reentrant_lock_that_is_forgotten_is_not_kept(client: Any) -> None:
    claim = lock(client, "k", reentrant=True, lease=1)
    claim.acquire()
    gc.collect()
    eventually(lambda: not holders(client, "k"), "a free lock", within=10)


async def test_reentrant_lock_is_of_its_task(server: Server, client: Any) -> None:
    aclient = redis.asyncio.Redis(port=server.port)
    claim = aio.lock(aclient, "k", reentrant=True, lease=1)
    async with claim as hold:
        async with claim as again:
            assert again is hold
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.create_task(claim.acquire()), 0.3)
        assert holders(client, "k") == 1
    # Its loss ends the outermost block, also when the task has left an inner one.
    went_on = False
    with pytest.raises(dsync.HoldLost):
        async with claim as hold:
            async with claim:
                pass
            client.execute_command("DLOCK.REVOKE", "k", hold.fence)
            await asyncio.sleep(20)
            went_on = True
    assert not went_on
    assert holders(client, "k") == 0
    await aclient.aclose()


def test_claim_shows_what_it_is_of() -> None:
    client = redis.Redis()
    claims = (lock(client, "k"), dsync.semaphore(client, "s"), dsync.group(client, "g"), dsync.once.begin(client, "w"))
    assert [repr(claim) for claim in claims] == [
        "<lock of 'k'>",
        "<semaphore of 's'>",
        "<group of 'g'>",
        "<once of 'w'>",
    ]
    assert re.fullmatch(r"\d+\.\d+\.\d+", dsync.__version__)

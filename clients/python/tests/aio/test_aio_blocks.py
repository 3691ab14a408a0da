"""Which hold the end of a block ends, where blocks of one claim are left in any order and by any task."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, AsyncIterator

import pytest
from test_blocks import held
from waiting import eventually, holders

import dsync
from dsync.aio import lock, once, semaphore


async def holding(claim: Any) -> AsyncIterator[Any]:
    async with claim as hold:
        yield hold


async def test_generator_that_is_left_by_break_ends_its_hold(aclient: Any) -> None:
    """The event loop closes the generator in a task of its own: the end raised, and the lock stayed for ever."""

    async def consume() -> None:
        async for _ in holding(lock(aclient, "k")):
            break

    await consume()

    async def is_free() -> bool:
        return await holders(aclient, "k") == 0

    await eventually(is_free, "a free lock")


async def test_stack_closed_in_another_task_ends_its_hold(aclient: Any) -> None:
    stack = AsyncExitStack()
    hold = await stack.enter_async_context(lock(aclient, "k"))
    await asyncio.create_task(stack.aclose())
    assert await holders(aclient, "k") == 0
    assert hold.left() == 0


async def test_generator_closed_inside_a_block_of_its_claim_ends_its_own_hold(aclient: Any, client: Any) -> None:
    """The innermost block of a task is not always the one that ends."""
    claim = semaphore(aclient, "k", limit=3)
    block: Any = holding(claim)
    await block.__anext__()
    stack = AsyncExitStack()
    other = await asyncio.create_task(stack.enter_async_context(claim))
    async with claim as mine:
        await block.aclose()
        assert held(client) == [other.fence, mine.fence]
        await stack.aclose()
        assert held(client) == [mine.fence]
    assert held(client) == []


async def test_task_that_has_left_its_block_to_another_is_not_cancelled(aclient: Any, client: Any) -> None:
    """A lost hold cancels the task that has entered, but only while its block is not over."""
    stack = AsyncExitStack()
    hold = await stack.enter_async_context(lock(aclient, "k", lease=1))
    await asyncio.create_task(stack.aclose())
    client.execute_command("DLOCK.ACQUIRE", "k")
    await asyncio.sleep(1.5)
    assert not hold.lost.is_set()


async def test_loss_is_told_to_the_task_that_leaves_the_block(aclient: Any) -> None:
    stack = AsyncExitStack()

    async def enter() -> None:
        await stack.enter_async_context(lock(aclient, "k", lease=1))

    await asyncio.create_task(enter())
    await aclient.delete("k")
    await asyncio.sleep(1.5)
    with pytest.raises(dsync.HoldLost):
        await stack.aclose()


async def test_run_left_in_another_task_is_recorded(aclient: Any) -> None:
    begin = once.begin(aclient, "w", wait=0)
    stack = AsyncExitStack()
    run = await stack.enter_async_context(begin)
    run.result = "ch_7"
    await asyncio.create_task(stack.aclose())
    async with begin as again:
        assert again.result == b"ch_7"

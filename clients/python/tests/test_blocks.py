"""Which hold the end of a block ends, where blocks of one claim are left in any order and by any thread."""

import threading
from contextlib import ExitStack
from typing import Any, Callable, Iterator

import pytest
from test_lock import fields, holders

from dsync import lock, once, semaphore


def held(client: Any, key: str = "k") -> list[int]:
    """Returns the fences of the holders."""
    info = client.execute_command("DSEM.INFO", key)
    return [] if info is None else [fields(row)["fence"] for row in fields(info)["first-holders"]]


def in_another_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def holding(claim: Any) -> Iterator[Any]:
    with claim as hold:
        yield hold


def test_block_left_in_another_thread_ends_its_hold(client: Any) -> None:
    """Web frameworks run a generator's parts in any thread of a pool: the end raised, and the lock stayed for ever."""
    block: Any = holding(lock(client, "k"))
    in_another_thread(lambda: next(block))
    in_another_thread(block.close)
    assert holders(client, "k") == 0


def test_block_closed_inside_a_block_of_another_thread_ends_its_own_hold(client: Any) -> None:
    """A thread that closed a generator of another thread ended the hold of the block that it was in itself."""
    claim = semaphore(client, "k", limit=2)
    block: Any = holding(claim)
    in_another_thread(lambda: next(block))
    with claim as mine:
        block.close()
        assert held(client) == [mine.fence]


def test_generator_closed_inside_a_block_of_its_claim_ends_its_own_hold(client: Any) -> None:
    """The same in one thread: the innermost block is not the one that ends."""
    claim = semaphore(client, "k", limit=2)
    block: Any = holding(claim)
    next(block)
    with claim as mine:
        block.close()
        assert held(client) == [mine.fence]
    assert held(client) == []


def test_stacks_of_one_claim_end_their_own_holds(client: Any) -> None:
    """ExitStack enters and leaves in frames of its own, which tell nothing about the block."""
    claim = semaphore(client, "k", limit=3)
    first, second = ExitStack(), ExitStack()
    one, other = first.enter_context(claim), second.enter_context(claim)
    with claim as mine:
        in_another_thread(first.close)
        assert held(client) == [other.fence, mine.fence]
        second.close()
        assert held(client) == [mine.fence]
    assert one.fence < other.fence


def test_nested_blocks_of_one_claim_end_from_the_inside(client: Any) -> None:
    claim = semaphore(client, "k", limit=2)
    with claim as outer:
        with claim as inner:
            assert held(client) == [outer.fence, inner.fence]
        assert held(client) == [outer.fence]
    assert held(client) == []


def test_call_of_exit_ends_what_its_thread_has_entered(client: Any) -> None:
    """Without a statement, only the thread can tell which hold is meant; in doubt none is ended."""
    claim = semaphore(client, "k", limit=2)
    other = in_another_thread(claim.__enter__)
    mine = claim.__enter__()
    claim.__exit__(None, None, None)
    assert held(client) == [other.fence]
    assert mine.left() == 0
    # There is only one left, so there is no doubt.
    claim.__exit__(None, None, None)
    assert held(client) == []
    in_another_thread(claim.__enter__)
    in_another_thread(claim.__enter__)
    with pytest.raises(RuntimeError, match="which of 2 holds"):
        claim.__exit__(None, None, None)
    assert len(held(client)) == 2


def test_run_left_in_another_thread_is_recorded(client: Any) -> None:
    begin = once.begin(client, "w", wait=0)

    def work() -> Iterator[Any]:
        with begin as run:
            yield run
            run.result = "ch_7"

    block = work()
    in_another_thread(lambda: next(block))
    assert in_another_thread(lambda: list(block)) == []
    with begin as again:
        assert again.result == b"ch_7"

"""Wait groups and work-once keys of synchronous clients."""

import json
import threading
from typing import Any

import pytest
import redis.asyncio
from servers import Server, eventually
from test_lock import fields, holders

import dsync
import dsync.aio
from dsync import group, once


def in_threads(*works: Any) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def test_group_is_waited_for_until_all_are_done(client: Any) -> None:
    batch = group(client, "g")
    assert batch.expect(3) == 3

    def work() -> None:
        with batch.member() as hold:
            assert hold.fence > 0

    threads = in_threads(work, work, work)
    assert batch.wait(timeout=30) == (3, 0)
    for thread in threads:
        thread.join()


def test_group_that_nobody_made_is_finished(client: Any) -> None:
    assert group(client, "none").wait(timeout=1) == (0, 0)


def test_failed_member_is_not_done(client: Any) -> None:
    batch = group(client, "g")
    batch.expect(1)
    with pytest.raises(OSError, match="no disk"), batch.member():
        raise OSError("no disk")
    assert batch.wait(timeout=0.2) is None
    with batch.member():
        pass
    assert batch.wait(timeout=30) == (1, 0)


def test_member_that_was_revoked_is_not_done(client: Any) -> None:
    batch = group(client, "g")
    with pytest.raises(dsync.HoldLost), batch.member() as hold:
        assert client.execute_command("DWG.REVOKE", "g", hold.fence) == 1
    assert batch.wait(timeout=30) == (0, 1)


def test_limit_of_a_group_keeps_members_waiting(client: Any) -> None:
    batch = group(client, "g", limit=1)
    with batch.member(), pytest.raises(dsync.NotAcquired):
        batch.member(wait=0).acquire()


def test_removed_group_is_no_finished_group(client: Any) -> None:
    batch = group(client, "g")
    batch.expect(1)
    told: list[Any] = []

    def wait() -> None:
        try:
            told.append(batch.wait())
        except Exception as error:
            told.append(str(error))

    (waiting,) = in_threads(wait)
    eventually(lambda: client.execute_command("DSYNC.CONTENDED"), "a waiter")
    client.delete("g")
    waiting.join()
    assert "removed" in told[0]


def test_work_is_done_once_and_everybody_gets_its_result(server: Server) -> None:
    client = server.client()
    runs: list[int] = []

    @once(client, lambda number: f"report:{number}")
    def report(number: int) -> Any:
        runs.append(number)
        return {"file": f"{number}.pdf"}

    results: list[Any] = []
    for thread in in_threads(*[lambda: results.append(report(7))] * 8):
        thread.join()
    assert results == [{"file": "7.pdf"}] * 8
    assert report(8) == {"file": "8.pdf"}
    assert runs == [7, 8]


def test_result_may_be_stored_as_it_is(client: Any) -> None:
    @once(client, "w", dumps=str, loads=bytes.decode)
    def work() -> str:
        return "ch_7"

    assert work() == work() == "ch_7"
    assert client.execute_command("DONCE.GET", "w")[1] == b"ch_7"


def test_result_that_cannot_be_read_is_an_error_that_names_its_key(client: Any) -> None:
    """Another program has stored it. What is no JSON is a text, but where the caller knows better."""
    _, token, _, _ = client.execute_command("DONCE.BEGIN", "w")
    client.execute_command("DONCE.DONE", "w", token, "RESULT", "ch_7")
    result: Any = once(client, "w")(lambda: None)()
    assert result == "ch_7"
    result = once(client, "w", dumps=bytes, loads=bytes)(lambda: None)()
    assert result == b"ch_7"
    with pytest.raises(ValueError, match=r"'w'.*Expecting value"):
        once(client, "w", loads=json.loads)(lambda: [])()


def test_call_goes_on_until_its_attempts_are_over(client: Any) -> None:
    """A caller that is alone never tried again."""
    runs = []

    @once(client, lambda failures: f"w{failures}", max_attempts=3, until_done=True)
    def work(failures: int) -> int:
        runs.append(failures)
        if len(runs) <= failures:
            raise OSError("no disk")
        return len(runs)

    assert work(2) == 3
    runs.clear()
    with pytest.raises(dsync.WorkFailed, match="after 3 attempts") as over:
        work(9)
    assert len(runs) == 3
    assert isinstance(over.value.__cause__, OSError)
    with pytest.raises(ValueError, match="needs max_attempts"):
        once(client, "w", until_done=True)


def test_failed_work_is_handed_on_until_its_attempts_are_used_up(client: Any) -> None:
    @once(client, "w", max_attempts=2)
    def work() -> None:
        raise OSError("no disk")

    for _ in range(2):
        with pytest.raises(OSError, match="no disk"):
            work()
    with pytest.raises(dsync.WorkFailed, match="2 attempts; the last failure: OSError: no disk") as given_up:
        work()
    assert given_up.value.attempts == 2


def test_explicit_form_tells_the_attempt_and_takes_the_result(client: Any) -> None:
    with once.begin(client, "charge:42", forever=True) as run:
        assert not run.is_done
        assert run.attempt == 1
        assert run.hold is not None
        run.result = "ch_7"
    with once.begin(client, "charge:42") as again:
        assert again.is_done
        assert again.result == b"ch_7"
        with pytest.raises(AttributeError):
            again.result = "ch_8"
    assert fields(client.execute_command("DONCE.INFO", "charge:42"))["kept-until-unix-ms"] is None


def test_result_is_kept_as_long_as_was_said(client: Any) -> None:
    with once.begin(client, "w", keep=3_600):
        pass
    kept_until = fields(client.execute_command("DONCE.INFO", "w"))["kept-until-unix-ms"]
    left = int(kept_until) / 1_000 - int(client.time()[0])
    assert 3_500 < left <= 3_601


def test_nobody_begins_again_before_the_delay_is_over(client: Any) -> None:
    with pytest.raises(OSError, match="no disk"), once.begin(client, "w", retry_delay=60):
        raise OSError("no disk")
    with pytest.raises(dsync.NotAcquired, match="delayed"), once.begin(client, "w", wait=0):
        pass


def test_interrupted_work_counts_as_no_attempt(client: Any) -> None:
    with pytest.raises(KeyboardInterrupt), once.begin(client, "w"):
        raise KeyboardInterrupt
    with once.begin(client, "w", wait=0) as run:
        assert run.attempt == 1


def test_work_that_somebody_else_has_begun_since_is_not_recorded(client: Any) -> None:
    with pytest.raises(dsync.HoldLost, match="another attempt"), once.begin(client, "w") as run:
        assert run.hold is not None
        client.execute_command("DONCE.REVOKE", "w", run.hold.fence)
        other = client.execute_command("DONCE.BEGIN", "w", "TOKEN", "other")
        assert other[0] == b"RUN"
    assert holders(client, "w", "DONCE") == 1


def test_failure_whose_reason_is_no_utf_8_is_a_failure(client: Any) -> None:
    for reason in ("\udcff", "ü" * 1_000):
        with pytest.raises(OSError, match=reason), once.begin(client, "w", max_attempts=1):
            raise OSError(reason)
        with pytest.raises(dsync.WorkFailed) as failed:
            once.begin(client, "w", max_attempts=1, wait=0).__enter__()
        assert failed.value.reason in (r"OSError: \udcff", "OSError: " + "ü" * 495)
        client.delete("w")


def test_functions_that_a_block_cannot_be_around_are_refused(client: Any) -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:
        yield

    async def generator_of_tasks() -> Any:
        yield

    tasks = redis.asyncio.Redis()
    of_threads: Any = (dsync.lock(client, "k"), once(client, "w"))
    of_tasks: Any = (dsync.aio.lock(tasks, "k"), dsync.aio.once(tasks, "w"))
    for decorate in (*of_threads, *of_tasks):
        for function in (generator, generator_of_tasks):
            with pytest.raises(TypeError, match="is a generator function"):
                decorate(function)
        with pytest.raises(TypeError, match="is a class"):
            decorate(dict)
    for decorate in of_threads:
        with pytest.raises(TypeError, match=r"belongs to dsync\.aio"):
            decorate(coroutine)
    for decorate in of_tasks:
        with pytest.raises(TypeError, match="belongs to dsync"):
            decorate(fields)


def test_plain_function_that_returns_a_coroutine_is_refused(client: Any) -> None:
    """Its work began after the block, and without the lock."""

    async def work() -> None:
        pytest.fail("the work begins")

    def wrapper() -> Any:
        return work()

    for decorate in (dsync.lock(client, "k"), once(client, "w")):
        with pytest.raises(TypeError, match=r"returns a coroutine, and belongs to dsync\.aio"):
            decorate(wrapper)()


def test_error_that_has_no_text_is_a_failure_like_others(client: Any) -> None:
    """The error of its `__str__` took its place, and the attempt lasted until its lease was over."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    @once(client, "w", max_attempts=1)
    def work() -> None:
        raise Mute

    with pytest.raises(Mute):
        work()
    with pytest.raises(dsync.WorkFailed, match="Mute: its text cannot be made: ZeroDivisionError"):
        work()

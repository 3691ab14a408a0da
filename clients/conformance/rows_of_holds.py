"""Rows of holds: how long one is certain, how its end is told, and finished work that meets a server which refuses."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import Callable, Iterator

import redis
from servers import SOON, eventually

from lab import Lab
from rows import hold, is_, row, told

# A hold is certain until the moment its last answered request was sent, plus lease.


@row("one")
def loss_is_told_within_the_lease_of_a_stopped_server(lab: Lab) -> None:
    hold(lab)
    lab.server.stop()
    told(lab, 6)


@row("one")
def hold_is_renewed_for_as_long_as_the_process_lives(lab: Lab) -> None:
    hold(lab, lease=5_000)
    is_(lab.driver.ask("until_lost", ms=8_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")
    assert lab.ask("DLOCK.INFO", "k") is None


# The end is told.


@row("one")
def removed_key_is_told_at_the_next_renewal(lab: Lab) -> None:
    hold(lab)
    lab.ask("DEL", "k")
    told(lab, 4)


@row("one")
def revoked_hold_is_told_at_the_next_renewal(lab: Lab) -> None:
    fence = hold(lab)["fence"]
    assert lab.ask("DLOCK.REVOKE", "k", fence) == 1
    told(lab, 4)


@row("one")
def key_of_another_type_is_told_at_the_next_renewal(lab: Lab) -> None:
    hold(lab)
    lab.ask("SET", "k", "1")
    told(lab, 4)


@row("one")
def release_of_a_hold_that_had_ended_says_so(lab: Lab) -> None:
    hold(lab, lease=60_000)
    lab.ask("DEL", "k")
    is_(lab.driver.ask("release", **{"as": "h"}), "lost")


# One table of passing answers: finished work is told until its lease is over, and a wait goes on.


@contextlib.contextmanager
def busy(lab: Lab) -> Iterator[None]:
    lab.ask("CONFIG", "SET", "busy-reply-threshold", 50)
    script = lab.server.client(socket_timeout=60)
    loop = lab.aside(lambda: script.eval("while true do end", 0))
    eventually(lambda: is_refused(lab, "BUSY"), "a busy server")
    yield
    lab.server.client().execute_command("SCRIPT", "KILL")
    with contextlib.suppress(redis.ResponseError):
        loop.result(timeout=SOON)


@contextlib.contextmanager
def out_of_memory(lab: Lab) -> Iterator[None]:
    lab.ask("CONFIG", "SET", "maxmemory", 1)
    yield
    lab.ask("CONFIG", "SET", "maxmemory", 0)


@contextlib.contextmanager
def without_replicas(lab: Lab) -> Iterator[None]:
    lab.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    yield
    lab.ask("CONFIG", "SET", "min-replicas-to-write", 0)


@contextlib.contextmanager
def disk_full(lab: Lab) -> Iterator[None]:
    shutil.rmtree(lab.server.client(decode_responses=True).config_get("dir")["dir"])
    lab.ask("CONFIG", "SET", "save", "3600 1")
    with contextlib.suppress(redis.ResponseError):
        lab.ask("BGSAVE")
    eventually(lambda: is_refused(lab, "MISCONF"), "a server that cannot save")
    yield
    lab.ask("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")


def is_refused(lab: Lab, word: str) -> bool:
    try:
        lab.server.client().execute_command("SET", "probe", "1")
    except redis.exceptions.RedisError as error:
        return word in f"{type(error).__name__} {error}".upper()
    return False


REFUSALS = {"busy": busy, "out of memory": out_of_memory, "without replicas": without_replicas, "disk full": disk_full}


def done_over(refusal: str) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        hold(lab, "job", family="once", lease=20_000)
        with REFUSALS[refusal](lab):
            done = lab.driver.begin("done", result="r", **{"as": "h"})
            time.sleep(2)
        is_(done.result(timeout=SOON), "done")
        again = lab.driver.ask("acquire", family="once", key="job", lease=20_000, wait=0, **{"as": "again"})
        assert is_(again, "done")["text"] == "r", again

    play.__name__ = f"finished_work_is_told_over_{refusal}".replace(" ", "_")
    return play


def wait_over(refusal: str) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        with REFUSALS[refusal](lab):
            answer = lab.driver.begin("acquire", family="lock", key="k", lease=20_000, wait=None, **{"as": "h"})
            time.sleep(2)
            assert not answer.done(), answer.result()
        is_(answer.result(timeout=SOON), "held")

    play.__name__ = f"wait_goes_on_over_{refusal}".replace(" ", "_")
    return play


for refusal in REFUSALS:
    row("one")(done_over(refusal))
    row("one")(wait_over(refusal))


@row("one")
def refused_result_counts_as_a_failed_attempt(lab: Lab) -> None:
    for attempt in (1, 2):
        run = hold(lab, "job", family="once", attempts=2, lease=20_000)
        assert run["attempt"] == attempt, run
        answer = lab.driver.ask("done", result="x" * 70_000, **{"as": "h"})
        assert answer["is"] == "error", answer
    gone = lab.driver.ask("acquire", family="once", key="job", attempts=2, lease=20_000, wait=0, **{"as": "again"})
    is_(gone, "failed")

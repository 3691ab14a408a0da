"""Rows of holds: how long one is certain, how its end is told, and finished work that meets a server which refuses."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from typing import Any, Callable, Iterator

import redis
from servers import SOON, eventually

from driver import Answer
from lab import Lab
from rows import Cannot, hold, is_, is_recorded, other_hold_lives_on, record, row, told

#: Holds of one client.
MANY = 100

# A hold is certain until the moment its last answered request was sent, plus lease.


@row("one")
def loss_is_told_within_the_lease_of_a_stopped_server(lab: Lab) -> None:
    hold(lab)
    lab.server.stop()
    told(lab, 6)


@row("one")
def lease_counts_from_when_its_request_was_sent(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    # From here on it has a connection.
    hold(lab, key="other")
    # A second `h` would release the first one, and its answer would come later for that.
    is_(lab.driver.ask("release", **{"as": "h"}), "released")
    proxy.delay_answers(1.5)
    hold(lab, lease=10_000)
    proxy.cut()
    # Its last request was sent 1.5 s ago.
    told(lab, 8.2)


@row("one")
def hold_is_renewed_for_as_long_as_the_process_lives(lab: Lab) -> None:
    hold(lab, lease=5_000)
    is_(lab.driver.ask("until_lost", ms=8_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")
    assert lab.ask("DLOCK.INFO", "k") is None


@row("one")
def hold_is_lost_at_its_max_hold(lab: Lab) -> None:
    hold(lab, lease=6_000, max_hold=9_000)
    is_(lab.driver.ask("until_lost", ms=6_000, **{"as": "h"}), "held")
    told(lab, 4)
    eventually(lambda: lab.ask("DLOCK.INFO", "k") is None, "the end of its last lease", within=4)


@row("one")
def holds_of_a_client_are_renewed_over_one_connection(lab: Lab) -> None:
    if "process" in hold(lab):
        raise Cannot("each hold is a process")
    names = [str(number) for number in range(MANY)]
    words = {"family": "lock", "lease": 6_000, "wait": None}
    asked = [lab.driver.begin("acquire", key=name, **{"as": name}, **words) for name in names]
    for answer in asked:
        is_(answer.result(timeout=SOON), "held")
    is_(lab.driver.ask("until_lost", ms=7_000, **{"as": "0"}), "held")
    connections = lab.server.client().client_list()
    assert len([line for line in connections if line["cmd"].lower() == "dlock.renew"]) == 1, connections
    for name in names:
        is_(lab.driver.ask("release", **{"as": name}), "released")


@row("one")
def key_is_looked_at_without_taking_it(lab: Lab) -> None:
    for family in ("lock", "semaphore"):
        words = {"family": family, "key": family}
        is_(lab.driver.ask("locked", **words), "free")
        hold(lab, **words)
        is_(lab.driver.ask("locked", **words), "locked")
        is_(lab.driver.ask("release", **{"as": "h"}), "released")
        is_(lab.driver.ask("locked", **words), "free")


@row("one")
def paused_key_that_nobody_holds_is_free(lab: Lab) -> None:
    for family, command in (("lock", "DLOCK.PAUSE"), ("semaphore", "DSEM.PAUSE")):
        hold(lab, family, family=family)
        lab.ask(command, family, 60_000)
        is_(lab.driver.ask("locked", family=family, key=family), "locked")
        is_(lab.driver.ask("release", **{"as": "h"}), "released")
        is_(lab.driver.ask("locked", family=family, key=family), "free")


@row("one")
def all_holders_are_listed(lab: Lab) -> None:
    for number in range(12):
        lab.ask("DLOCK.ACQUIRE", "k", "SHARED", "TOKEN", f"t{number}", "PX", 60_000)
    assert len(is_(lab.driver.ask("holders", key="k"), "holders")["fences"]) == 12


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
def work_whose_key_has_another_type_is_lost(lab: Lab) -> None:
    for family in ("once", "group"):
        hold(lab, family, family=family, lease=60_000)
        lab.ask("SET", family, "1")
        is_(record(lab).result(timeout=SOON), "lost")


@row("one", "cluster")
def key_of_another_type_ends_no_other_hold(lab: Lab) -> None:
    other_hold_lives_on(lab)


@row("one")
def release_of_a_hold_that_had_ended_says_so(lab: Lab) -> None:
    hold(lab, lease=60_000)
    lab.ask("DEL", "k")
    is_(lab.driver.ask("release", **{"as": "h"}), "lost")


@row("one")
def release_of_a_lost_hold_says_so(lab: Lab) -> None:
    hold(lab, lease=3_000, max_hold=1_000)
    told(lab, 3)
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


@contextlib.contextmanager
def full(lab: Lab) -> Iterator[None]:
    admin = lab.server.client(single_connection_client=True)
    admin.config_set("maxclients", 1)
    admin.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")
    yield
    admin.config_set("maxclients", 1_000)


def is_refused(lab: Lab, word: str) -> bool:
    try:
        lab.server.client().execute_command("SET", "probe", "1")
    except redis.exceptions.RedisError as error:
        return word in f"{type(error).__name__} {error}".upper()
    return False


REFUSALS = {
    "busy": busy,
    "out of memory": out_of_memory,
    "without replicas": without_replicas,
    "disk full": disk_full,
    "a full server": full,
}


def done_over(refusal: str) -> Callable[[Lab], None]:
    # A server without memory takes 1,000 bytes.
    result = "r" * 1_001

    def play(lab: Lab) -> None:
        hold(lab, "job", family="once", lease=20_000)
        with REFUSALS[refusal](lab):
            done = record(lab, result)
            time.sleep(2)
        is_recorded(done, lab, "job", result=result)
        again = lab.driver.ask("acquire", family="once", key="job", lease=20_000, wait=0, **{"as": "again"})
        assert is_(again, "done").get("text", result) == result, again

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


# What `once` stores reads the same in every language.


def once(lab: Lab, key: str, value: Any = None, expected: str = "value", **words: Any) -> Answer:
    return is_(lab.driver.ask("once", key=key, value=value, **words), expected)


@row("one")
def value_of_once_is_stored_as_json(lab: Lab) -> None:
    values = {"text": "h\u00e9llo", "number": 7, "object": {"file": "7.pdf", "parts": [1, None, True]}}
    for key, value in values.items():
        assert once(lab, key, value)["value"] == value
        assert json.loads(lab.ask("DONCE.GET", key)[1]) == value
        again = once(lab, key, "another")
        assert (again["value"], again["runs"]) == (value, 0)


@row("one")
def result_of_another_kind_is_read_as_text(lab: Lab) -> None:
    _, token, *_ = lab.ask("DONCE.BEGIN", "job")
    lab.ask("DONCE.DONE", "job", token, "RESULT", "ch_7")
    assert once(lab, "job")["value"] == "ch_7"


@row("one")
def once_tries_again_until_its_attempts_are_over(lab: Lab) -> None:
    words = {"attempts": 3, "until_done": True}
    assert once(lab, "job", "r", failures=2, **words)["runs"] == 3
    given_up = once(lab, "other", "r", "failed", failures=9, **words)
    assert given_up["runs"] == 3
    assert "no disk" in given_up["text"], given_up
    alone = once(lab, "alone", "r", "failed", failures=9, attempts=3)
    assert alone["runs"] == 1


# What a server refuses before it looks at a command is no answer to it.


def with_a_password(lab: Lab) -> None:
    """The driver is another one from now on, with a user of its own."""
    lab.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
    lab.driver = lab.another("one", [lab.server.port], user="app", password="pw")


def rotate(lab: Lab, password: str) -> None:
    """The server has another password, and closes the connections of who came with the last one."""
    lab.ask("ACL", "SETUSER", "app", "resetpass", f">{password}")
    lab.ask("CLIENT", "KILL", "USER", "app")


@row("one")
def finished_work_is_told_over_a_password_that_is_rotated(lab: Lab) -> None:
    with_a_password(lab)
    hold(lab, "job", family="once", lease=20_000)
    rotate(lab, "next")
    done = record(lab)
    time.sleep(1.5)
    rotate(lab, "pw")
    is_recorded(done, lab, "job")


@row("one")
def hold_is_renewed_over_a_password_that_is_rotated(lab: Lab) -> None:
    with_a_password(lab)
    hold(lab, lease=6_000)
    rotate(lab, "next")
    time.sleep(3)
    rotate(lab, "pw")
    is_(lab.driver.ask("until_lost", ms=6_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")


@row("one")
def refused_password_is_told_at_once(lab: Lab) -> None:
    with_a_password(lab)
    rotate(lab, "next")
    # Who has not logged in may do nothing, as where passwords are used.
    lab.ask("ACL", "SETUSER", "default", "off")
    begun = time.monotonic()
    answer = lab.driver.ask("acquire", family="lock", key="k", lease=30_000, wait=None, **{"as": "h"})
    took = time.monotonic() - begun
    is_(answer, "error")
    assert took < 5, f"a refused password was told after {took:.1f} s"


@row("one")
def release_that_was_refused_and_then_finds_nothing_says_so(lab: Lab) -> None:
    """The script removes the key and goes on: a refusal has carried out nothing, so 0 is no answer to a repetition."""
    hold(lab, lease=60_000)
    lab.ask("CONFIG", "SET", "busy-reply-threshold", 50)
    script = "redis.call('DEL', 'k') local begun = redis.call('TIME')[1] while redis.call('TIME')[1] - begun < 6 do end"
    loop = lab.aside(lambda: lab.server.client(socket_timeout=60).eval(script, 0))
    eventually(lambda: is_refused(lab, "BUSY"), "a busy server")
    is_(lab.driver.ask("release", **{"as": "h"}), "lost")
    loop.result(timeout=SOON)


@row("one")
def refused_result_counts_as_a_failed_attempt(lab: Lab) -> None:
    for attempt in (1, 2):
        run = hold(lab, "job", family="once", attempts=2, lease=20_000)
        assert run["attempt"] == attempt, run
        is_(lab.driver.ask("done", result="x" * 70_000, **{"as": "h"}), "error")
    gone = lab.driver.ask("acquire", family="once", key="job", attempts=2, lease=20_000, wait=0, **{"as": "again"})
    is_(gone, "failed")

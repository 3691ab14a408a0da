"""Rows of confirmed holds: an answer that the replicas do not confirm is no answer. `standby` is the replica."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import redis
from servers import SOON, eventually, until_in_sync

from driver import Answer
from lab import Lab
from rows import first_holder, hold, is_, is_recorded, other_hold_lives_on, record, row, told

#: Keys of the row that promotes a replica behind a living primary.
MANY = 50


def ask(lab: Lab, name: str = "h", **words: Any) -> Future[Answer]:
    words = {"family": "lock", "key": "k", "lease": 6_000, "wait": None, "replicas": 1, **words}
    return lab.driver.begin("acquire", **{"as": name}, **words)


def tries(lab: Lab) -> int:
    """How often the server was asked for a lock. Redis writes the command as it is registered."""
    stats = lab.server.client().info("commandstats").items()
    return sum(int(stat["calls"]) for name, stat in stats if name.lower() == "cmdstat_dlock.acquire")


def still_asks(asked: Future[Answer]) -> None:
    time.sleep(2)
    if asked.done():
        is_(asked.result(), "nothing yet")


@row("pair", "cluster")
def confirmed_hold_is_on_its_replica(lab: Lab) -> None:
    """In the cluster no other shard has a replica."""
    for replicas in (1, "all"):
        fence = is_(ask(lab, key=lab.key, replicas=replicas, wait=10_000).result(timeout=SOON), "held")["fence"]
        assert first_holder(lab, lab.key, lab.standby)["fence"] == fence
        is_(lab.driver.ask("release", **{"as": "h"}), "released")


@row("pair", "cluster")
def work_is_done_when_all_replicas_know(lab: Lab) -> None:
    hold(lab, lab.key, family="once", lease=20_000, replicas="all", wait=10_000)
    is_recorded(record(lab), lab, lab.key, lab.standby)


@row("pair")
def try_that_no_replica_confirms_leaves_nothing(lab: Lab) -> None:
    lab.standby.stop()
    answer = is_(ask(lab, wait=0, lease=60_000).result(timeout=SOON), "not confirmed")
    assert (answer["have"], answer["wanted"]) == (0, 1), answer
    assert "k" in answer["text"], answer
    eventually(lambda: lab.ask("DLOCK.INFO", "k") is None, "the withdrawal of a grant that was not confirmed")


@row("pair")
def wait_that_too_few_replicas_confirm_leaves_nothing(lab: Lab) -> None:
    answer = is_(ask(lab, wait=3_000, replicas=2, lease=60_000).result(timeout=SOON), "not confirmed")
    assert (answer["have"], answer["wanted"]) == (1, 2), answer
    eventually(lambda: lab.ask("DLOCK.INFO", "k") is None, "the withdrawal of a grant that was not confirmed")


@row("pair")
def wait_whose_last_try_has_no_answer_tells_who_confirmed_an_earlier_one(lab: Lab) -> None:
    # A replica on a busy machine has time to confirm each try.
    asked = ask(lab, wait=8_000, replicas=2, lease=60_000, within=2_500)
    # It comes after it is known who confirmed the first one.
    eventually(lambda: tries(lab) > 1, "a second try")
    lab.server.stop()
    answer = is_(asked.result(timeout=SOON), "not confirmed")
    lab.server.go_on()
    assert (answer["have"], answer["wanted"]) == (1, 2), answer


@row("pair", "cluster")
def grant_that_nobody_may_confirm_is_given_back(lab: Lab) -> None:
    lab.ask("ACL", "SETUSER", "default", "-wait")
    for replicas in (1, "all"):
        answer = ask(lab, key=lab.key, replicas=replicas, wait=10_000, lease=60_000).result(timeout=SOON)
        assert "wait" in is_(answer, "error")["text"].lower(), answer
        eventually(lambda: lab.ask("DLOCK.INFO", lab.key) is None, "the withdrawal of a grant that was not confirmed")


@row("pair", "cluster")
def key_of_another_type_ends_no_other_confirmed_hold(lab: Lab) -> None:
    other_hold_lives_on(lab, replicas=1)


@row("one")
def all_replicas_are_at_least_one(lab: Lab) -> None:
    answer = is_(ask(lab, wait=0, replicas="all").result(timeout=SOON), "not confirmed")
    assert answer["have"] == 0, answer


@row("pair")
def wait_goes_on_until_its_grant_is_confirmed(lab: Lab) -> None:
    lab.standby.stop()
    asked = ask(lab)
    eventually(lambda: lab.ask("DLOCK.INFO", "k") or asked.done(), "a grant")
    still_asks(asked)
    lab.standby.go_on()
    is_(asked.result(timeout=SOON), "held")


@row("pair")
def turn_in_the_queue_is_confirmed(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    asked = ask(lab)
    eventually(lambda: lab.waiters("k") == 1 or asked.done(), "a waiter")
    lab.standby.stop()
    lab.ask("DLOCK.RELEASE", "k", "mine")
    eventually(lambda: lab.waiters("k") == 0, "a grant")
    still_asks(asked)
    lab.standby.go_on()
    is_(asked.result(timeout=SOON), "held")


@row("pair")
def hold_is_lost_when_its_last_confirmed_lease_is_over(lab: Lab) -> None:
    is_(ask(lab).result(timeout=SOON), "held")
    lab.standby.stop()
    # One renewal has been answered by now, and not confirmed.
    is_(lab.driver.ask("until_lost", ms=2_800, **{"as": "h"}), "held")
    assert lab.ask("DLOCK.INFO", "k") is not None
    told(lab, 6)


@row("pair")
def hold_outlives_renewals_that_are_not_confirmed(lab: Lab) -> None:
    is_(ask(lab).result(timeout=SOON), "held")
    lab.standby.stop()
    is_(lab.driver.ask("until_lost", ms=2_800, **{"as": "h"}), "held")
    lab.standby.go_on()
    is_(lab.driver.ask("until_lost", ms=6_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")


@row("pair")
def work_is_done_when_that_is_confirmed(lab: Lab) -> None:
    hold(lab, "job", family="once", lease=20_000, replicas=1)
    lab.standby.stop()
    done = record(lab)
    still_asks(done)
    lab.standby.go_on()
    is_recorded(done, lab, "job", lab.standby)


@row("pair")
def work_is_done_over_connections_that_were_closed(lab: Lab) -> None:
    """What was sent over such a connection was not carried out, so the repetition is the first."""
    for family in ("once", "group"):
        hold(lab, family, family=family, lease=60_000, replicas=1)
        lab.close_connections()
        time.sleep(0.5)
        is_(record(lab).result(timeout=SOON), "done")
    assert lab.ask("DONCE.GET", "once", server=lab.standby)[0] == "DONE"
    assert lab.ask("DWG.WAIT", "group") == [1, 0]


@row("one")
def grant_is_synced_to_the_disk(lab: Lab) -> None:
    lab.ask("CONFIG", "SET", "appendonly", "yes")
    answer = ask(lab, replicas=None, disk=True, wait=3_000).result(timeout=SOON)
    try:
        lab.ask("WAITAOF", 0, 0, 1)
        is_(answer, "held")
    except redis.ResponseError:
        assert "7.2" in is_(answer, "error")["text"], answer


@row("one")
def disk_without_an_append_only_file_is_an_error(lab: Lab) -> None:
    is_(ask(lab, replicas=None, disk=True, wait=3_000).result(timeout=SOON), "error")


@row("pair", "three")
def two_sides_never_hold_at_once(lab: Lab) -> None:
    """The standby is promoted behind a primary that lives on, and gives each key to another when its lease is over."""
    words: dict[str, Any] = {"family": "lock", "lease": 6_000, "wait": None}
    names = [f"confirmed {number}" for number in range(MANY)]
    # Without `replicas` they do, and with those that the replica confirms which stays with the old primary.
    exposed: dict[str, Any] = {"not confirmed": {}}
    if lab.mode == "three":
        exposed.update({"one of two": {"replicas": 1}, "all that are attached": {"replicas": "all"}})
    asked = [lab.driver.begin("acquire", key=name, replicas=lab.replicas, **{"as": name}, **words) for name in names]
    asked += [lab.driver.begin("acquire", key=name, **{"as": name}, **words, **by) for name, by in exposed.items()]
    for answer in asked:
        is_(answer.result(timeout=SOON), "held")
    until_in_sync(lab.server)
    lost: dict[str, float] = {}
    for name in names:
        answer = lab.driver.begin("until_lost", ms=int(SOON * 1_000), **{"as": name})
        answer.add_done_callback(lambda _, name=name: lost.setdefault(name, time.monotonic()))
    lab.ask("REPLICAOF", "NO", "ONE", server=lab.standby)
    granted = other_side_acquires(lab, [*names, *exposed])
    for name in names:
        assert lost.get(name, granted[name]) < granted[name], f"{name}: lost {lost.get(name)}, granted {granted[name]}"
    for name in exposed:
        is_(lab.driver.ask("look", **{"as": name}), "held")


def other_side_acquires(lab: Lab, keys: list[str]) -> dict[str, float]:
    """Tries until the standby has granted each key. Returns a moment before each grant."""
    granted: dict[str, float] = {}
    standby = lab.standby.client()

    def granted_all() -> bool:
        left = [key for key in keys if key not in granted]
        line = standby.pipeline(transaction=False)
        for key in left:
            line.execute_command("DLOCK.ACQUIRE", key, "TOKEN", "other side", "PX", 60_000)
        sent = time.monotonic()
        granted.update((key, sent) for key, reply in zip(left, line.execute()) if reply is not None)
        return len(granted) == len(keys)

    eventually(granted_all, "each key granted by the promoted replica")
    return granted

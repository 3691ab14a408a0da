"""Rows of the options that say who is next and for how long: lanes, rests and indexes."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from servers import SOON, eventually, until_in_sync

from driver import Answer
from lab import Lab
from rows import Cannot, first_holder, hold, is_, row
from rows_of_failovers import killed


def begin(lab: Lab, name: str, **words: Any) -> Future[Answer]:
    """The driver asks for a permit."""
    words = {"key": lab.key, "lease": 30_000, "wait": None, "limit": 1, **words}
    return lab.driver.begin("acquire", family="semaphore", **{"as": name}, **words)


def places(lab: Lab) -> int:
    reply = lab.ask("DSEM.INFO", lab.key) or []
    return int(dict(zip(reply[::2], reply[1::2])).get("waiters", 0))


@row("one")
def index_is_kept_when_its_answer_is_lost(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    # From here on it has a connection.
    if "process" in hold(lab, key="other"):
        raise Cannot("each hold has a connection of its own")
    proxy.cut_answers()
    asked = begin(lab, "a", limit=2, index=True)
    eventually(lambda: lab.ask("DSEM.INFO", lab.key), "a hold that nobody has heard of")
    proxy.mend()
    assert is_(asked.result(timeout=SOON), "held")["index"] == 0
    assert is_(begin(lab, "b", limit=2, index=True).result(timeout=SOON), "held")["index"] == 1


@row("one")
def index_of_a_wait_is_the_one_that_came_back(lab: Lab) -> None:
    for number in range(2):
        answer = begin(lab, str(number), limit=2, index=True).result(timeout=SOON)
        assert is_(answer, "held")["index"] == number
    waiting = begin(lab, "next", limit=2, index=True)
    eventually(lambda: places(lab) == 1, "a waiter")
    is_(lab.driver.ask("release", **{"as": "0"}), "released")
    assert is_(waiting.result(timeout=SOON), "held")["index"] == 0


@row("sentinel", "cluster")
def wait_with_an_index_goes_on_after_a_failover(lab: Lab) -> None:
    is_(begin(lab, "first", index=True).result(timeout=SOON), "held")
    waiting = begin(lab, "next", index=True)
    eventually(lambda: places(lab) == 1, "a waiter")
    until_in_sync(lab.server)
    killed(lab)
    is_(lab.driver.ask("release", **{"as": "first"}), "released")
    assert is_(waiting.result(timeout=SOON), "held")["index"] == 0


@row("one")
def hold_that_ends_early_rests(lab: Lab) -> None:
    for family in ("lock", "semaphore"):
        hold(lab, key=family, family=family, min_hold=60_000)
        is_(lab.driver.ask("release", **{"as": "h"}), "released")
        words = {"family": family, "key": family, "lease": 30_000, "limit": 1}
        refused = is_(lab.driver.ask("acquire", wait=0, **{"as": "t"}, **words), "busy")
        assert "rests for another" in refused["text"], refused["text"]


@row("one")
def lane_with_fewer_permits_is_next(lab: Lab) -> None:
    is_(begin(lab, "first", lane="flood").result(timeout=SOON), "held")
    waiting = []
    for number, lane in enumerate(["flood", "flood", "other"]):
        waiting.append(begin(lab, str(number), lane=lane))
        eventually(lambda number=number: places(lab) == number + 1, "a waiter more")
    ended = "first"
    for number in (2, 0, 1):
        assert not waiting[number].done()
        is_(lab.driver.ask("release", **{"as": ended}), "released")
        is_(waiting[number].result(timeout=SOON), "held")
        ended = str(number)


@row("one")
def lane_has_no_more_permits_than_its_limit(lab: Lab) -> None:
    words = {"limit": 5, "wait": 0, "lane_limit": 1}
    is_(begin(lab, "a", lane="a", **words).result(timeout=SOON), "held")
    is_(begin(lab, "more", lane="a", **words).result(timeout=SOON), "busy")
    is_(begin(lab, "b", lane="b", **words).result(timeout=SOON), "held")


@row("one")
def bounds_are_checked_before_anything_is_sent(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    wrong: list[dict[str, Any]] = [
        {"key": ""},
        {"limit": 0},
        {"limit": 1_000_001},
        {"owner": 129 * "x"},
        {"lane": 129 * "x"},
        {"lane": "a", "lane_limit": 0},
        {"lease": 31 * 86_400_000},
        {"min_hold": 31 * 86_400_000},
    ]
    for words in wrong:
        is_(begin(lab, "h", **words).result(timeout=SOON), "error")
        assert b"DSEM" not in proxy.sent.upper(), words


@row("one")
def lease_that_the_server_refuses_changes_nothing(lab: Lab) -> None:
    lab.ask("CONFIG", "SET", "dsync.max-lease-ms", 10_000)
    hold(lab, lease=3_000)
    refused = is_(lab.driver.ask("renew", lease=20_000, **{"as": "h"}), "error")
    assert "10 seconds" in refused["text"] or "10000" in refused["text"], refused["text"]
    is_(lab.driver.ask("until_lost", ms=5_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("renew", lease=6_000, **{"as": "h"}), "renewed")
    # A renewal of before may arrive behind it.
    eventually(lambda: int(first_holder(lab, "k")["lease-left-ms"]) > 3_000, "a longer lease")
    # What counts then is the length that was granted last, not the first one.
    is_(lab.driver.ask("renew", lease=20_000, **{"as": "h"}), "error")
    time.sleep(3)
    eventually(lambda: int(first_holder(lab, "k")["lease-left-ms"]) > 3_000, "a longer lease")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")

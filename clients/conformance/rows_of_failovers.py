"""Rows of servers that change: failovers behind Sentinel and in a cluster, planned or not, and slots that move."""

from __future__ import annotations

import time
from typing import Callable

from servers import SOON, until_in_sync, until_primary

from lab import Lab
from rows import first_holder, hold, is_, is_recorded, record, row, wait_for

#: How long a waiter may take from the moment the key is free at a server that everybody can find.
SERVED_WITHIN = 5.0
#: After SENTINEL FAILOVER the old primary goes on as one for eight seconds, until the sentinels make it a replica.
SERVED_AFTER_SENTINEL = 12.0


def planned(lab: Lab) -> None:
    lab.fail_over()


def killed(lab: Lab) -> None:
    lab.server.kill()
    until_primary(lab.standby)


def frozen(lab: Lab) -> None:
    lab.server.stop()
    until_primary(lab.standby)


def waiter_is_served_after(fault: Callable[[Lab], None]) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        key = lab.key
        lab.ask("DLOCK.ACQUIRE", key, "TOKEN", "mine", "PX", 120_000)
        answer = wait_for(lab, lab.driver, key)
        until_in_sync(lab.server)
        fault(lab)
        time.sleep(2)  # A client that looks for the primary every now and then has found it.
        assert not answer.done(), answer.result()
        begun = time.monotonic()
        assert lab.ask("DLOCK.RELEASE", key, "mine", server=lab.standby) == 1
        is_(answer.result(timeout=SOON), "held")
        took = time.monotonic() - begun
        within = SERVED_AFTER_SENTINEL if lab.mode == "sentinel" and fault is planned else SERVED_WITHIN
        assert took < within, f"served {took:.1f} s after the key was free"
        is_(lab.driver.ask("release", **{"as": "w"}), "released")

    play.__name__ = f"waiter_is_served_after_a_{fault.__name__}_primary"
    return play


def hold_outlives(fault: Callable[[Lab], None]) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        fence = hold(lab, lab.key, lease=15_000)["fence"]
        until_in_sync(lab.server)
        fault(lab)
        is_(lab.driver.ask("until_lost", ms=16_000, **{"as": "h"}), "held")
        assert first_holder(lab, lab.key, lab.standby)["fence"] == fence
        is_(lab.driver.ask("release", **{"as": "h"}), "released")

    play.__name__ = f"hold_outlives_a_{fault.__name__}_primary"
    return play


for fault in (planned, killed, frozen):
    row("sentinel", "cluster")(waiter_is_served_after(fault))
    row("sentinel", "cluster")(hold_outlives(fault))


@row("sentinel", "cluster")
def finished_work_is_told_over_a_failover(lab: Lab) -> None:
    hold(lab, lab.key, family="once", lease=20_000)
    until_in_sync(lab.server)
    lab.server.stop()
    is_recorded(record(lab), lab, lab.key, lab.standby)


@row("cluster")
def waiter_and_hold_move_with_their_slot(lab: Lab) -> None:
    moving, target = lab.key, lab.elsewhere
    lab.ask("DLOCK.ACQUIRE", moving, "TOKEN", "mine", "PX", 120_000)
    answer = wait_for(lab, lab.driver, moving)
    lab.cluster.move(moving, target)
    begun = time.monotonic()
    assert lab.ask("DLOCK.RELEASE", moving, "mine", server=target) == 1
    is_(answer.result(timeout=SOON), "held")
    took = time.monotonic() - begun
    assert took < SERVED_WITHIN, f"served {took:.1f} s after the key was free"
    is_(lab.driver.ask("release", **{"as": "w"}), "released")


@row("cluster")
def half_of_a_slot_that_moves_is_used(lab: Lab) -> None:
    """One of its keys has moved, another is new, and the move goes no further for longer than a lease."""
    moved, new, target = lab.key, f"{{{lab.key}}}new", lab.elsewhere
    fence = hold(lab, moved, lease=3_000)["fence"]
    lab.cluster.move_keys(moved, target, lab.server)
    words = {"family": "lock", "key": new, "lease": 3_000, "wait": 5_000, "limit": 1}
    is_(lab.driver.ask("acquire", **{"as": "new"}, **words), "held")
    for name in ("h", "new"):
        is_(lab.driver.ask("until_lost", ms=5_000, **{"as": name}), "held")
    lab.cluster.move(moved, target, lab.server)
    assert first_holder(lab, moved, target)["fence"] == fence
    for name in ("h", "new"):
        is_(lab.driver.ask("until_lost", ms=2_000, **{"as": name}), "held")
        is_(lab.driver.ask("release", **{"as": name}), "released")

"""Rows of servers that change: failovers behind Sentinel and in a cluster, planned or not, and slots that move."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any, Callable

import redis
from servers import SOON, eventually, until_in_sync, until_primary

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


class Takings:
    """The driver takes one lock after the other, each with a new key, and keeps them all."""

    def __init__(self, lab: Lab, replicas: int, lease: int) -> None:
        self._lab = lab
        self._words: dict[str, Any] = {"family": "lock", "lease": lease, "wait": 0, "replicas": replicas}
        #: Of each hold, by its key.
        self.fences: dict[str, int] = {}
        #: When its loss was told.
        self.lost: dict[str, float] = {}
        self._is_over = threading.Event()
        self._taking = lab.aside(self._take)

    def _take(self) -> None:
        for number in itertools.count(1):
            key = f"{self._words['replicas']} replicas {number}"
            answer = self._lab.driver.ask("acquire", key=key, **{"as": key}, **self._words)
            if answer["is"] == "held":
                self._watch(key)
                self.fences[key] = answer["fence"]
            if self._is_over.wait(0.1):
                return

    def _watch(self, key: str) -> None:
        def note(answer: Any) -> None:
            if answer.exception() is None and answer.result()["is"] == "lost":
                self.lost[key] = time.monotonic()

        self._lab.driver.begin("until_lost", ms=int(SOON * 1_000), **{"as": key}).add_done_callback(note)

    def until(self, count: int) -> None:
        """Waits for so many holds more."""
        wanted = len(self.fences) + count
        eventually(lambda: len(self.fences) >= wanted, f"{count} holds more")

    def end(self) -> None:
        self._is_over.set()
        self._taking.result(timeout=SOON)

    def are_outranked_by(self, other_side: OtherSide) -> None:
        for key, fence in self.fences.items():
            assert fence < other_side.fences[key], f"{key}: {fence} is not below {other_side.fences[key]}"


class OtherSide:
    """Another client, which tries each key of these takings and one more, `other`, at the standby until it has them."""

    def __init__(self, lab: Lab, *takings: Takings) -> None:
        self._keys = lambda: ["other", *itertools.chain(*(list(one.fences) for one in takings))]
        self._standby = lab.standby.client()
        #: What it was granted, with a moment before that.
        self.fences: dict[str, int] = {}
        self.granted: dict[str, float] = {}
        self._is_over = threading.Event()
        self._trying = threading.Thread(target=self._try_until_over)

    def __enter__(self) -> OtherSide:
        self._trying.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        self._trying.join()

    def until_granted(self, *keys: str) -> None:
        eventually(lambda: self.granted.keys() >= {*keys}, f"{keys} granted by the standby")

    def _try_until_over(self) -> None:
        while not self._is_over.wait(0.02):
            # A Sentinel closes the connections of the server that it promotes.
            with contextlib.suppress(redis.ConnectionError):
                self._try_each()

    def _try_each(self) -> None:
        left = [key for key in self._keys() if key not in self.granted]
        line = self._standby.pipeline(transaction=False)
        for key in left:
            line.execute_command("DLOCK.ACQUIRE", key, "TOKEN", "other side", "PX", 60_000)
        sent = time.monotonic()
        # As a replica it refuses them.
        for key, reply in zip(left, line.execute(raise_on_error=False)):
            if isinstance(reply, list):
                self.fences[key], self.granted[key] = reply[1], sent


@row("three behind sentinel")
def switch_without_a_pause_spares_what_all_replicas_confirmed(lab: Lab) -> None:
    """The old primary goes on, and the replica that is not promoted confirms for it until a Sentinel corrects it."""
    lease = 6_000
    one, both = Takings(lab, 1, lease), Takings(lab, 2, lease)
    for takings in (one, both):
        takings.until(3)
    lab.ask("DLOCK.ACQUIRE", "other", "TOKEN", "mine", "PX", lease)
    until_in_sync(lab.server)
    with OtherSide(lab, one, both) as other_side:
        lab.fail_over()
        confirmed_until = {both: time.monotonic()}
        sibling = lab.sibling.client()

        def is_corrected() -> bool:
            return bool(sibling.info("replication")["master_port"] == lab.standby.port)

        wanted = len(one.fences) + 3
        eventually(lambda: len(one.fences) >= wanted or is_corrected(), "three holds more that one replica confirms")
        for takings in (one, both):
            takings.end()
        eventually(is_corrected, "a replica that follows the new primary")
        confirmed_until[one] = time.monotonic()
        # By then the new primary has ended each lease that was not renewed there.
        other_side.until_granted("other")
        released = {}
        for key in [*one.fences, *both.fences]:
            released[key] = time.monotonic()
            lab.driver.ask("release", **{"as": key})
        other_side.until_granted(*released)
    for takings, last in confirmed_until.items():
        takings.are_outranked_by(other_side)
        end = last + lease / 1_000
        late = {key: lost - end for key, lost in takings.lost.items() if end < lost < released[key]}
        assert not late, f"told so many seconds after the last confirmed lease: {late}"
    # With one of two it is not so: the old primary grants what the new one grants as well.
    for key in both.fences:
        ended = min(released[key], both.lost.get(key, released[key]))
        assert ended < other_side.granted[key], f"{key} is held by two"


@row("three behind sentinel")
def switch_while_writes_are_paused_spares_what_one_replica_confirmed(lab: Lab) -> None:
    takings = Takings(lab, 1, lease=20_000)
    takings.until(3)
    with OtherSide(lab, takings) as other_side:
        lab.switch()
        other_side.until_granted("other")
        takings.until(3)
        takings.end()
        for key in takings.fences:
            is_(lab.driver.ask("release", **{"as": key}), "released")
        other_side.until_granted(*takings.fences)
    takings.are_outranked_by(other_side)

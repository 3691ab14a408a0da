"""Lets a fleet of helpers work under faults, and checks what they say: `soak.py SECONDS SEED [-d DRIVER] [-m MODE]`.

The fleet is three drivers (README.md), of any language, behind one server, a Sentinel group, or a cluster, the last two
also on hosts that can be cut off from each other. Its workers take locks, permits and work-once keys, work for a
moment, ask their holds whether they are still held, and end them. Meanwhile connections, processes, servers, links,
disks and clocks fail. What a hold says is a claim: from the answer `held` until the last question that was answered so.
Claims of a lock never overlap, not over a failover either; those of a semaphore never exceed its limit; later fences
are higher; finished work is never begun again. When the faults are over each key can be taken again, no server has a
change that it could not apply, and no hold or waiter is left.

The last line counts: `counted: N operations; kind of fault=N; …`. It exits with 1 and says why if a claim was wrong.
The faults follow from the seed; what they meet does not quite.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from typing import Any, Callable, Iterator, Optional

import redis
from servers import SOON, eventually

import hosts
from driver import Answer, Cannot, Driver
from ledger import LIMIT, Claim, Ledger
from partitions import Hosts, OnHosts, SlotsOnHosts
from run import drivers
from slots import Slots
from topologies import Group, One, Topology, for_a_while

#: Milliseconds of a lease: short, so that many run out.
LEASE = 3_000
#: Seconds within which each key can be taken once the faults are over: lease, takeover grace, reconnecting.
SERVED_WITHIN = 30.0
DRIVERS, WORKERS = 3, 4
#: What an answer may be while servers fail; `cannot` is a language's own.
NO_HOLD = {"busy", "lost", "error", "not confirmed", "failed", "given up", "cannot"}


TOPOLOGIES: tuple[type[Topology], ...] = (One, Group, Slots, Hosts, SlotsOnHosts)


class Member:
    """A driver of the fleet, which is started anew when it was killed."""

    def __init__(self, name: str, command: list[str], topology: Topology) -> None:
        self.name = name
        self._start = lambda: Driver(command, topology.mode, topology.ports())
        self._driver = self._start()
        self._lock = threading.Lock()

    def driver(self) -> Driver:
        with self._lock:
            return self._driver

    def kill(self) -> None:
        with self._lock:
            self._driver.kill()
            self._driver = self._start()

    def signal(self, number: signal.Signals) -> None:
        with self._lock:
            self._driver._process.send_signal(number)

    def close(self) -> None:
        self._driver.kill()


class Fleet:
    def __init__(self, topology: Topology, members: list[Member], seed: int) -> None:
        self.topology = topology
        self.seed = seed
        self.ledger = Ledger()
        self.faults: Counter[str] = Counter()
        self.members = members
        self.is_over = threading.Event()
        self._works = 0

    def close(self) -> None:
        for member in self.members:
            member.close()

    def ask(self, driver: Driver, order: str, **words: Any) -> Answer:
        answer = driver.ask(order, within=4 * SOON, **words)
        self.ledger.count(answer)
        return answer

    def acquire(self, driver: Driver, name: str, key: str, wait: int) -> Answer:
        words: dict[str, Any] = {"key": key, "lease": LEASE, "wait": wait}
        if key.startswith(self.topology.confirmed or ("?",)):
            words["replicas"] = self.topology.replicas
        families = {"lock": "lock", "permits": "semaphore", "work": "once"}
        words["family"] = next(family for kind, family in families.items() if key.startswith(kind))
        if words["family"] == "semaphore":
            words["limit"] = LIMIT
        return self.ask(driver, "acquire", **{"as": name}, **words)

    def work(self, number: int) -> None:
        """One worker: takes something, works, ends it, again and again."""
        member = self.members[number % len(self.members)]
        chance = random.Random(f"{self.seed} {number}")
        turn = 0
        while not self.is_over.is_set():
            turn += 1
            name = f"{number}.{turn}"
            # A driver that is killed answers nothing any more, and the next one knows nothing of its holds.
            with contextlib.suppress(AssertionError, OSError, Cannot, KeyError):
                self.take(member.driver(), name, self.choose(chance), chance)

    def choose(self, chance: random.Random) -> str:
        if chance.random() < 0.2:
            if chance.random() < 0.3:
                self._works += 1
            return f"{self.topology.work}{self._works}"
        return chance.choice(self.topology.keys)

    def take(self, driver: Driver, name: str, key: str, chance: random.Random) -> None:
        asked = time.monotonic()
        answer = self.acquire(driver, name, key, wait=chance.choice([0, 200, 2_000]))
        if answer["is"] != "held":
            if answer["is"] not in NO_HOLD | {"done"}:
                self.ledger.wrong(f"{key}: {answer}")
            time.sleep(chance.uniform(0, 0.05))
            return
        granted = until = time.monotonic()
        fence = answer["fence"]
        try:
            for _ in range(chance.randrange(5)):
                # Sometimes longer than the lease.
                time.sleep(chance.choice([0.0, 0.01, 0.2, 0.2, LEASE / 1_000]) * chance.random())
                looked = time.monotonic()
                if self.ask(driver, "look", **{"as": name})["is"] != "held":
                    break
                until = looked
            self.end(driver, name, key, chance)
        finally:
            self.ledger.claim(Claim(key, name, fence, asked, granted, until))

    def end(self, driver: Driver, name: str, key: str, chance: random.Random) -> None:
        if key.startswith("work") and chance.random() < 0.7:
            if self.ask(driver, "done", result="r", **{"as": name})["is"] == "done":
                self.ledger.done(key)
        elif chance.random() < 0.95:
            self.ask(driver, "release", **{"as": name})
        # The others are left to the end of the process, or of the round.

    def fail(self, seconds: float) -> None:
        """Faults, one after the other, until the time is over. Each has an end."""
        chance = random.Random(self.seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for_a_while(chance, 0.05, 1)
            faults = {**self.topology.faults(chance), **self.of_processes(chance)}
            kind = chance.choice(sorted(faults))
            self.faults[kind] += 1
            # A server that fails closes connections, the runner's own too.
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError, OSError):
                faults[kind]()

    def of_processes(self, chance: random.Random) -> dict[str, Callable[[], None]]:
        member = chance.choice(self.members)
        past = LEASE / 1_000 + chance.uniform(0.5, 2)
        return {
            "process: killed": member.kill,
            "process: stopped for a moment": lambda: self.suspend(member, chance.uniform(0.1, 1)),
            "process: stopped past its leases": lambda: self.suspend(member, past),
        }

    def suspend(self, member: Member, seconds: float) -> None:
        member.signal(signal.SIGSTOP)
        time.sleep(seconds)
        member.signal(signal.SIGCONT)

    def play(self, seconds: float) -> None:
        workers = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(DRIVERS * WORKERS)]
        for worker in workers:
            worker.start()
        self.fail(seconds)
        self.is_over.set()
        for worker in workers:
            worker.join(4 * SOON)
            if worker.is_alive():
                left = [f"{member.name}: {order}" for member in self.members for order in member.driver().unanswered()]
                self.ledger.wrong(f"an order was never answered: {left}")
        self.settle()
        for claim in self.topology.claims:
            self.ledger.claim(claim)
        self.ledger.judge()

    def settle(self) -> None:
        """The faults are over: every key can be taken, and nothing is left behind."""
        for member in self.members:
            member.kill()
        self.topology.heal()
        driver = self.members[0].driver()
        for key in self.topology.keys:
            deadline = time.monotonic() + SERVED_WITHIN
            while (answer := self.acquire(driver, key, key, wait=1_000))["is"] != "held":
                if answer["is"] == "cannot" or time.monotonic() > deadline:
                    break
            if answer["is"] == "cannot":
                continue
            if answer["is"] != "held":
                roles = [server.client().execute_command("ROLE") for server in self.topology.servers()]
                self.ledger.wrong(f"{key} cannot be taken {SERVED_WITHIN} s after the last fault: {answer}; {roles}")
            else:
                self.ask(driver, "release", **{"as": key})
        self.close()
        for server in self.topology.servers():
            self.look_for_leftovers(server.client())

    def look_for_leftovers(self, client: Any) -> None:
        def left() -> dict[str, int]:
            told = client.info("dsync")
            return {name: told[name] for name in ("dsync_holds", "dsync_waiters") if told[name]}

        try:
            eventually(lambda: not left(), "no hold and no waiter")
        except AssertionError:
            self.ledger.wrong(f"left behind: {left()}")
        if unapplied := client.info("dsync")["dsync_unapplied_changes"]:
            self.ledger.wrong(f"{unapplied} changes were not applied")


def members_of(topology: Topology, chosen: dict[str, list[str]], chance: random.Random) -> list[Member]:
    """Starts the drivers: any of those that know such servers."""
    members: list[Member] = []
    while len(members) < DRIVERS:
        name = chance.choice(sorted(chosen))
        try:
            members.append(Member(name, chosen[name], topology))
            print(f"{topology.name}: {name}", flush=True)
        except Cannot:
            del chosen[name]
    return members


def kind_of(name: Optional[str], chance: random.Random) -> type[Topology]:
    """Chooses where the fleet works. With hosts that can be cut off the program goes on in a network namespace."""
    kinds = [kind for kind in TOPOLOGIES if name in (None, kind.name)]
    kind = chance.choice(kinds)
    if not issubclass(kind, OnHosts):
        return kind
    words = hosts.way()
    if words is not None:
        hosts.enter(words)
        return kind
    return chance.choice([kind for kind in TOPOLOGIES if not issubclass(kind, OnHosts)])


@contextlib.contextmanager
def topology_of(kind: type[Topology]) -> Iterator[Topology]:
    topology = kind()
    try:
        yield topology
    finally:
        topology.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("-d", "--driver", default="", help="only drivers whose name contains this")
    parser.add_argument("-m", "--mode", choices=[kind.name for kind in TOPOLOGIES])
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    chosen = {name: command for name, command in drivers().items() if asked.driver in name}
    with topology_of(kind_of(asked.mode, chance)) as topology:
        fleet = Fleet(topology, members_of(topology, chosen, chance), asked.seed)
        try:
            fleet.play(asked.seconds)
        except BaseException:
            fleet.ledger.wrong(traceback.format_exc())
        finally:
            fleet.close()
        if fleet.ledger.violations:
            print(topology.logs())
    for violation in fleet.ledger.violations:
        print(f"VIOLATION: {violation}")
    answers = ", ".join(f"{count} {kind}" for kind, count in sorted(fleet.ledger.answers.items()))
    print(f"answers: {answers}")
    faults = "".join(f"; {kind}={count}" for kind, count in sorted(fleet.faults.items()))
    print(f"counted: {fleet.ledger.operations} operations{faults}")
    return 1 if fleet.ledger.violations else 0


if __name__ == "__main__":
    sys.exit(main())

"""Lets a fleet of helpers work under faults, and checks what they say: `soak.py SECONDS SEED [-d DRIVER] [-m MODE]`.

The fleet is three drivers (README.md), of any language, behind one server, a Sentinel group or a cluster. Its workers
take locks, permits and work-once keys, work for a moment, ask their holds whether they are still held, and end them.
Meanwhile connections, processes, servers and links fail. What a hold says is a claim: from the answer `held` until the
last question that was answered so. Claims of a lock never overlap, not over a failover either; those of a semaphore
never exceed its limit; later fences are higher; finished work is never begun again. When the faults are over each key
can be taken again, no server has a change that it could not apply, and no hold or waiter is left.

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
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import redis
from servers import SOON, Cluster, Proxy, Server, Watched, eventually, promote, until_in_sync, until_primary

from driver import Answer, Cannot, Driver
from run import drivers

#: Milliseconds of a lease: short, so that many run out.
LEASE = 3_000
#: Seconds within which each key can be taken once the faults are over: lease, takeover grace, reconnecting.
SERVED_WITHIN = 30.0
DRIVERS, WORKERS = 3, 4
LIMIT = 2
#: What an answer may be while servers fail; `cannot` is a language's own.
NO_HOLD = {"busy", "lost", "error", "not confirmed", "failed", "given up", "cannot"}


class Claim(NamedTuple):
    key: str
    worker: str
    fence: int
    asked: float
    granted: float
    until: float


class Ledger:
    """What the fleet has said, and what of it cannot be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: Dict[str, List[Claim]] = {}
        self._done: Dict[str, float] = {}
        self.operations = 0
        self.answers: Counter[str] = Counter()
        self.violations: List[str] = []

    def count(self, answer: Answer) -> None:
        with self._lock:
            self.operations += 1
            self.answers[answer["is"]] += 1

    def claim(self, claim: Claim) -> None:
        with self._lock:
            self._claims.setdefault(claim.key, []).append(claim)

    def done(self, key: str) -> None:
        """The server has answered that the work is done."""
        with self._lock:
            self._done.setdefault(key, time.monotonic())

    def wrong(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)

    def judge(self) -> None:
        for key, claims in self._claims.items():
            claims.sort(key=lambda claim: claim.granted)
            most = LIMIT if key.startswith("permits") else 1
            for number, later in enumerate(claims):
                earlier = claims[:number]
                # What was claimed to the end of a moment is no overlap with what begins then.
                held = [claim for claim in earlier if claim.until > later.granted]
                if len(held) >= most:
                    self.wrong(f"{key}: {later} while {held}")
                passed = [claim for claim in earlier if claim.granted < later.asked and claim.fence >= later.fence]
                if passed:
                    self.wrong(f"{key}: {later} has no higher fence than {passed[-1]}")
                if later.asked > self._done.get(key, later.asked):
                    self.wrong(f"{key}: {later} begins what was done at {self._done[key]}")


class Topology:
    """The servers of a round, what the drivers connect to, and the keys. `confirmed` are those with a replica."""

    mode = "one"
    keys: List[str]
    confirmed: Tuple[str, ...] = ()
    #: How the keys of work-once begin.
    work = "work:"

    def servers(self) -> List[Server]:
        raise NotImplementedError

    def ports(self) -> List[int]:
        raise NotImplementedError

    def faults(self, chance: random.Random) -> Dict[str, Callable[[], None]]:
        raise NotImplementedError

    def close(self) -> None:
        for server in self.servers():
            server.close()

    def client(self) -> Any:
        """A connection that finds the keys."""
        raise NotImplementedError


def for_a_while(chance: random.Random, least: float, most: float) -> None:
    time.sleep(chance.uniform(least, most))


def paused(server: Server, chance: random.Random) -> None:
    server.client().execute_command("CLIENT", "PAUSE", chance.randrange(100, 1_500), chance.choice(["WRITE", "ALL"]))


def killed_connections(server: Server) -> None:
    server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def unblocked(server: Server) -> None:
    client = server.client(decode_responses=True)
    for row in client.client_list():
        client.execute_command("CLIENT", "UNBLOCK", row["id"])


def busy(server: Server, chance: random.Random) -> None:
    """A script that nobody else gets past."""
    script = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i end return n"
    server.client(socket_timeout=SOON).eval(script, 0, chance.randrange(1_000_000, 20_000_000))


def stopped(server: Server, chance: random.Random, most: float) -> None:
    server.stop()
    try:
        for_a_while(chance, 0.1, most)
    finally:
        server.go_on()


def common(servers: List[Server], chance: random.Random) -> Dict[str, Callable[[], None]]:
    """What every server can suffer without a failover."""
    server = chance.choice(servers)
    return {
        "server: stopped for a moment": lambda: stopped(server, chance, 0.8),
        "server: paused": lambda: paused(server, chance),
        "server: busy with a script": lambda: busy(server, chance),
        "connection: all killed": lambda: killed_connections(server),
        "connection: all unblocked": lambda: unblocked(server),
    }


class One(Topology):
    """One server that writes and syncs each change, behind a link."""

    def __init__(self) -> None:
        self.server = Server("--appendonly", "yes", "--appendfsync", "always")
        self.link = Proxy(self.server.port)
        self.keys = ["lock:1", "lock:2", "permits:1"]

    def servers(self) -> List[Server]:
        return [self.server]

    def ports(self) -> List[int]:
        return [self.link.port]

    def client(self) -> Any:
        return self.server.client()

    def faults(self, chance: random.Random) -> Dict[str, Callable[[], None]]:
        def killed() -> None:
            self.server.kill()
            for_a_while(chance, 0, 2)
            self.server.start()

        def cut() -> None:
            chance.choice([self.link.cut, self.link.cut_answers])()
            for_a_while(chance, 0.2, 5)
            self.link.mend()

        def slow() -> None:
            self.link.delay_answers(chance.uniform(0.01, 0.5))
            for_a_while(chance, 0.2, 3)
            self.link.delay_answers(0)

        own = {
            "server: killed and started": killed,
            "server: stopped past leases": lambda: stopped(self.server, chance, 6),
            "link: cut": cut,
            "link: slow": slow,
        }
        return {**common([self.server], chance), **own}

    def close(self) -> None:
        self.link.close()
        super().close()


class Group(Topology):
    """A primary and a replica behind a Sentinel. All holds are confirmed."""

    mode = "sentinel"

    def __init__(self) -> None:
        self.group = Watched()
        self.keys = ["lock:1", "lock:2", "permits:1"]
        self.confirmed = ("lock", "permits", "work")

    def servers(self) -> List[Server]:
        return [self.group.primary, self.group.replica]

    def ports(self) -> List[int]:
        return [self.group.sentinel.port]

    def client(self) -> Any:
        return self.group.primary.client()

    def close(self) -> None:
        self.group.close()

    def failed_over(self, heal: Callable[[Server], None]) -> None:
        """The replica takes over from a primary that is gone; when it is back, it follows."""
        old, new = self.group.primary, self.group.replica
        until_primary(new)
        self.group.primary, self.group.replica = new, old
        heal(old)
        eventually(lambda: old.client().info("replication")["role"] == "slave", "the old primary as a replica")
        until_in_sync(new)

    def faults(self, chance: random.Random) -> Dict[str, Callable[[], None]]:
        def ordered() -> None:
            self.group.switch("")
            self.failed_over(lambda old: None)

        def killed() -> None:
            until_in_sync(self.group.primary)
            self.group.primary.kill()
            self.failed_over(Server.start)

        def frozen() -> None:
            until_in_sync(self.group.primary)
            self.group.primary.stop()
            self.failed_over(Server.go_on)

        def synced_anew() -> None:
            self.group.replica.kill()
            for_a_while(chance, 0, 2)
            self.group.replica.start()
            self.group.replica.client().execute_command("REPLICAOF", "127.0.0.1", self.group.primary.port)
            until_in_sync(self.group.primary)

        own = {
            "server: failover ordered": ordered,
            "server: primary killed": killed,
            "server: primary frozen": frozen,
            "server: replica killed and synced anew": synced_anew,
            "server: replica stopped": lambda: stopped(self.group.replica, chance, 3),
        }
        return {**common([self.group.primary], chance), **own}


class Slots(Topology):
    """A cluster. The holds of the first shard, which has a replica, are confirmed; the slot of `moving` moves."""

    mode = "cluster"

    def __init__(self) -> None:
        self.cluster = Cluster()
        first, second, third = self.cluster.nodes[:3]

        def key(kind: str, node: Server) -> str:
            names = (f"{kind}:{number}" for number in range(1_000))
            return next(name for name in names if self.cluster.owner_of(name) is node)

        self.moving = key("lock", second)
        self.ends = [second, third]
        self.keys = [key("lock-confirmed", first), key("permits-confirmed", first), self.moving, key("permits", third)]
        self.confirmed = ("lock-confirmed", "permits-confirmed")
        self.work = f"work:{{{self.keys[-1]}}}:"
        self.primary, self.replica = first, self.cluster.replica

    def servers(self) -> List[Server]:
        return self.cluster.nodes

    def ports(self) -> List[int]:
        return [node.port for node in self.cluster.nodes]

    def client(self) -> Any:
        return self.cluster.client()

    def failed_over(self, heal: Callable[[Server], None]) -> None:
        until_primary(self.replica)
        self.primary, self.replica = self.replica, self.primary
        heal(self.replica)
        old = self.replica.client()
        eventually(lambda: old.info("replication")["role"] == "slave", "the old primary as a replica")
        until_in_sync(self.primary)

    def faults(self, chance: random.Random) -> Dict[str, Callable[[], None]]:
        def ordered() -> None:
            until_in_sync(self.primary)
            promote(self.replica, self.replica, "CLUSTER", "FAILOVER")
            self.failed_over(lambda old: None)

        def frozen() -> None:
            until_in_sync(self.primary)
            self.primary.stop()
            self.failed_over(Server.go_on)

        def moved() -> None:
            source, target = self.ends
            self.ends.reverse()
            self.cluster.move(self.moving, target, source)

        own = {
            "server: failover ordered": ordered,
            "server: primary frozen": frozen,
            "server: slot moved": moved,
        }
        return {**common(self.cluster.nodes[1:3], chance), **own}


TOPOLOGIES = (One, Group, Slots)


class Member:
    """A driver of the fleet, which is started anew when it was killed."""

    def __init__(self, command: List[str], topology: Topology) -> None:
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
    def __init__(self, topology: Topology, members: List[Member], seed: int) -> None:
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

    def ask(self, member: Member, order: str, **words: Any) -> Answer:
        answer = member.driver().ask(order, within=4 * SOON, **words)
        self.ledger.count(answer)
        return answer

    def acquire(self, member: Member, name: str, key: str, wait: int) -> Answer:
        words: Dict[str, Any] = {"key": key, "lease": LEASE, "wait": wait}
        if key.startswith(self.topology.confirmed or ("?",)):
            words["replicas"] = "all"
        families = {"lock": "lock", "permits": "semaphore", "work": "once"}
        words["family"] = next(family for kind, family in families.items() if key.startswith(kind))
        if words["family"] == "semaphore":
            words["limit"] = LIMIT
        return self.ask(member, "acquire", **{"as": name}, **words)

    def work(self, number: int) -> None:
        """One worker: takes something, works, ends it, again and again."""
        member = self.members[number % len(self.members)]
        chance = random.Random(f"{self.seed} {number}")
        turn = 0
        while not self.is_over.is_set():
            turn += 1
            name = f"{number}.{turn}"
            # A driver that is killed answers nothing any more.
            with contextlib.suppress(AssertionError, OSError, Cannot, KeyError):
                self.take(member, name, self.choose(chance), chance)

    def choose(self, chance: random.Random) -> str:
        if chance.random() < 0.2:
            if chance.random() < 0.3:
                self._works += 1
            return f"{self.topology.work}{self._works}"
        return chance.choice(self.topology.keys)

    def take(self, member: Member, name: str, key: str, chance: random.Random) -> None:
        asked = time.monotonic()
        answer = self.acquire(member, name, key, wait=chance.choice([0, 200, 2_000]))
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
                if self.ask(member, "look", **{"as": name})["is"] != "held":
                    break
                until = looked
            self.end(member, name, key, chance)
        finally:
            self.ledger.claim(Claim(key, name, fence, asked, granted, until))

    def end(self, member: Member, name: str, key: str, chance: random.Random) -> None:
        if key.startswith("work") and chance.random() < 0.7:
            if self.ask(member, "done", result="r", **{"as": name})["is"] == "done":
                self.ledger.done(key)
        elif chance.random() < 0.95:
            self.ask(member, "release", **{"as": name})
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

    def of_processes(self, chance: random.Random) -> Dict[str, Callable[[], None]]:
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
                self.ledger.wrong("an order was never answered")
        self.settle()
        self.ledger.judge()

    def settle(self) -> None:
        """The faults are over: every key can be taken, and nothing is left behind."""
        for member in self.members:
            member.kill()
        for key in self.topology.keys:
            deadline = time.monotonic() + SERVED_WITHIN
            while (answer := self.acquire(self.members[0], key, key, wait=1_000))["is"] != "held":
                if answer["is"] == "cannot" or time.monotonic() > deadline:
                    break
            if answer["is"] == "cannot":
                continue
            if answer["is"] != "held":
                roles = [server.client().execute_command("ROLE") for server in self.topology.servers()]
                self.ledger.wrong(f"{key} cannot be taken {SERVED_WITHIN} s after the last fault: {answer}; {roles}")
            else:
                self.ask(self.members[0], "release", **{"as": key})
        self.close()
        for server in self.topology.servers():
            self.look_for_leftovers(server.client())

    def look_for_leftovers(self, client: Any) -> None:
        def left() -> Dict[str, int]:
            told = client.info("dsync")
            return {name: told[name] for name in ("dsync_holds", "dsync_waiters") if told[name]}

        try:
            eventually(lambda: not left(), "no hold and no waiter")
        except AssertionError:
            self.ledger.wrong(f"left behind: {left()}")
        if unapplied := client.info("dsync")["dsync_unapplied_changes"]:
            self.ledger.wrong(f"{unapplied} changes were not applied")


def members_of(topology: Topology, chosen: Dict[str, List[str]], chance: random.Random) -> List[Member]:
    """Starts the drivers: any of those that know such servers."""
    members: List[Member] = []
    while len(members) < DRIVERS:
        name = chance.choice(sorted(chosen))
        try:
            members.append(Member(chosen[name], topology))
            print(f"{topology.mode}: {name}", flush=True)
        except Cannot:
            del chosen[name]
    return members


@contextlib.contextmanager
def topology_of(mode: Optional[str], chance: random.Random) -> Iterator[Topology]:
    kinds = [kind for kind in TOPOLOGIES if mode in (None, kind.mode)]
    topology = chance.choice(kinds)()
    try:
        yield topology
    finally:
        topology.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("-d", "--driver", default="", help="only drivers whose name contains this")
    parser.add_argument("-m", "--mode", choices=[kind.mode for kind in TOPOLOGIES])
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    chosen = {name: command for name, command in drivers().items() if asked.driver in name}
    with topology_of(asked.mode, chance) as topology:
        fleet = Fleet(topology, members_of(topology, chosen, chance), asked.seed)
        try:
            fleet.play(asked.seconds)
        except BaseException:
            fleet.ledger.wrong(traceback.format_exc())
        finally:
            fleet.close()
    for violation in fleet.ledger.violations:
        print(f"VIOLATION: {violation}")
    answers = ", ".join(f"{count} {kind}" for kind, count in sorted(fleet.ledger.answers.items()))
    print(f"answers: {answers}")
    faults = "".join(f"; {kind}={count}" for kind, count in sorted(fleet.faults.items()))
    print(f"counted: {fleet.ledger.operations} operations{faults}")
    return 1 if fleet.ledger.violations else 0


if __name__ == "__main__":
    sys.exit(main())

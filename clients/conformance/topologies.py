"""Where a fleet works (soak.py): servers of one kind of set-up, their keys, and the faults that they can suffer."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any, Callable, Optional

import redis
from servers import SOON, Proxy, Server, Watched, eventually, until_in_sync, until_primary

from ledger import Claim
from shims import Machine, lose_power

Faults = dict[str, Callable[[], None]]

#: Until servers have found each other again, on a busy machine.
HEALED_WITHIN = 90.0
#: Results are kept longer than any clock jumps, so that no work may be done again. A delay runs on the wall clock too.
SETTINGS = ("--dsync.once-keep-ms", str(365 * 86_400_000), "--repl-diskless-sync-delay", "0")


class Topology:
    """The servers of a round, what the drivers connect to, and the keys. `confirmed` are those with replicas."""

    name: str
    #: What the drivers are told.
    mode: str
    keys: list[str]
    confirmed: tuple[str, ...] = ()
    #: By how many replicas.
    replicas: Any = "all"
    #: How the keys of work-once begin.
    work = "work:"
    #: What the faults themselves have held.
    claims: list[Claim]

    def servers(self) -> list[Server]:
        raise NotImplementedError

    def ports(self) -> list[int]:
        raise NotImplementedError

    def faults(self, chance: random.Random) -> Faults:
        raise NotImplementedError

    def heal(self) -> None:
        """Waits for what the servers do by themselves once the faults are over."""

    def logs(self) -> str:
        return "".join(f"--- {server.address}:{server.port}\n{server.log()}" for server in self.servers())

    def close(self) -> None:
        for server in self.servers():
            server.close()


def until_followed(find: Callable[[], Optional[Server]], what: str) -> None:
    """Waits for a primary whose replicas have all that it had written when it was found.

    `find` returns it, or None as long as the servers are in no order: they may change once more at any moment.
    """
    written: dict[int, int] = {}

    def is_followed() -> bool:
        primary = find()
        if primary is None:
            written.clear()
            return False
        told = primary.client().info("replication")
        until = written.setdefault(primary.port, told["master_repl_offset"])
        replicas = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        return all(replica["state"] == "online" and replica["offset"] >= until for replica in replicas)

    eventually(is_followed, what, within=HEALED_WITHIN)


def for_a_while(chance: random.Random, least: float, most: float) -> None:
    time.sleep(chance.uniform(least, most))


def paused(server: Server, chance: random.Random) -> None:
    server.client().execute_command("CLIENT", "PAUSE", chance.randrange(100, 1_500), chance.choice(["WRITE", "ALL"]))


def killed_connections(server: Server) -> None:
    server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def unblocked(server: Server) -> None:
    client = server.client(decode_responses=True)
    # Redis 7.0 panics if a client is unblocked that a pause has stopped.
    client.client_unpause()
    for row in client.client_list():
        client.execute_command("CLIENT", "UNBLOCK", row["id"])


def busy(server: Server, chance: random.Random) -> None:
    """A script that nobody else gets past."""
    script = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i end return n"
    with contextlib.suppress(redis.ResponseError):  # Sentinel ends a script that takes too long.
        server.client(socket_timeout=SOON).eval(script, 0, chance.randrange(1_000_000, 20_000_000))


def stopped(server: Server, chance: random.Random, most: float) -> None:
    server.stop()
    try:
        for_a_while(chance, 0.1, most)
    finally:
        server.go_on()


def set_clock(machine: Machine, server: Server, chance: random.Random) -> None:
    """The wall clock is seconds, minutes, hours or days wrong, either way, or right again."""
    # A pause ends by the wall clock, also for whoever would end it: wait until there is none.
    server.client().eval("return 1", 0)
    machine.set_clock(chance.choice([1, 60, 3_600, 86_400, 0]) * chance.uniform(-50, 50))


def common(servers: list[Server], chance: random.Random) -> Faults:
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

    name = mode = "one"

    def __init__(self) -> None:
        self.machine = Machine()
        always = ("--appendonly", "yes", "--appendfsync", "always")
        self.server = Server(*always, *SETTINGS, environment=self.machine.environment())
        self.link = Proxy(self.server.port)
        self.keys = ["lock:1", "lock:2", "permits:1"]
        self.claims = []

    def servers(self) -> list[Server]:
        return [self.server]

    def ports(self) -> list[int]:
        return [self.link.port]

    def faults(self, chance: random.Random) -> Faults:
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

        def powerless() -> None:
            # Often nothing is there of what was not synced, and sometimes a part.
            lose_power(self.server, max(0, chance.randrange(-100, 101)))
            for_a_while(chance, 0, 2)
            self.server.start()
            # Redis, and Valkey before 9, carry out at their next start what was complete of a torn transaction.
            if "Truncating the AOF" in self.server.log():
                client = self.server.client(decode_responses=True)
                client.bgrewriteaof()
                while client.info("persistence")["aof_rewrite_in_progress"]:
                    time.sleep(0.05)

        own = {
            "server: killed and started": killed,
            "server: stopped past leases": lambda: stopped(self.server, chance, 6),
            "link: cut": cut,
            "link: slow": slow,
        }
        if self.machine.has_shims:
            own["disk: power lost"] = powerless
            own["server: wall clock set"] = lambda: set_clock(self.machine, self.server, chance)
        return {**common([self.server], chance), **own}

    def close(self) -> None:
        self.link.close()
        super().close()


class Group(Topology):
    """A primary and a replica behind a Sentinel. All holds are confirmed."""

    name = mode = "sentinel"

    def __init__(self) -> None:
        self.machines = [Machine(), Machine()]
        self.group = Watched(*SETTINGS, environments=[machine.environment() for machine in self.machines])
        self._machine_of = dict(zip((self.group.primary.port, self.group.replica.port), self.machines))
        self.keys = ["lock:1", "lock:2", "permits:1"]
        self.claims = []
        self.confirmed = ("lock", "permits", "work")

    def servers(self) -> list[Server]:
        return [self.group.primary, self.group.replica]

    def ports(self) -> list[int]:
        return [self.group.sentinel.port]

    def close(self) -> None:
        self.group.close()

    def heal(self) -> None:
        """Waits for a primary with its replica. A Sentinel changes them also if a server was busy for too long."""

        def in_order() -> Optional[Server]:
            port = self.group.sentinel.client().sentinel_master("locks")["port"]
            if port == self.group.replica.port:
                self.group.primary, self.group.replica = self.group.replica, self.group.primary
            told = self.group.primary.client().info("replication")
            return self.group.primary if (told["role"], told["connected_slaves"]) == ("master", 1) else None

        until_followed(in_order, "a group in order")

    def failed_over(self, heal: Callable[[Server], None]) -> None:
        """The replica takes over from a primary that is gone; when it is back, it follows."""
        old, new = self.group.primary, self.group.replica
        until_primary(new)
        self.group.primary, self.group.replica = new, old
        heal(old)
        # A Sentinel may change the two once more.
        self.heal()

    def faults(self, chance: random.Random) -> Faults:
        self.heal()

        def ordered() -> None:
            self.group.switch("")
            self.failed_over(lambda old: None)

        def killed() -> None:
            self.group.primary.kill()
            self.failed_over(Server.start)

        def frozen() -> None:
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
        if self.machines[0].has_shims:
            # Of one server, so that the clocks of the two differ.
            server = chance.choice(self.servers())
            own["server: wall clock set"] = lambda: set_clock(self._machine_of[server.port], server, chance)
        return {**common([self.group.primary], chance), **own}

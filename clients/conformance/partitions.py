"""Hosts for a fleet (soak.py) that are cut off from each other: a group behind Sentinels, or a cluster."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import Callable, Optional

import redis
from servers import Proxy, Server, eventually

from hosts import Host
from slots import Slots
from topologies import HEALED_WITHIN, Faults, Topology, common, for_a_while, until_followed


class OnHosts(Topology):
    """Servers on hosts, one on each. The drivers reach them as if they were here."""

    hosts: list[Host]
    ways: list[Proxy]
    #: Begins the names of faults of its links.
    whose = ""
    #: Seconds that hosts are parted, at most: often long enough that a replica is promoted.
    parted_for = 8.0

    def ports(self) -> list[int]:
        return [way.port for way in self.ways]

    def close(self) -> None:
        super().close()
        for way in self.ways:
            way.close()
        for host in self.hosts:
            host.close()

    def parted(self, primary: Callable[[], Server], chance: random.Random) -> Faults:
        """The faults of links between hosts. `primary` is the one whose hold may be taken over."""

        def some() -> list[Host]:
            return chance.sample(self.hosts, chance.randrange(1, len(self.hosts) + 1))

        def part(cuts: list[Callable[[], None]]) -> None:
            for cut in cuts:
                cut()
            for_a_while(chance, 0.3, self.parted_for)
            for host in self.hosts:
                host.join()

        def split() -> None:
            # Often the old primary stays with the drivers, and the others promote a new one.
            others = [host for host in self.hosts if host.address != primary().address]
            part([host.split_off for host in chance.choice([others, some()])])

        return {
            f"link: {self.whose}hosts cut off": lambda: part([host.cut_off for host in some()]),
            f"link: {self.whose}network split": split,
        }


class Hosts(OnHosts):
    """A primary and two replicas on three hosts, with a Sentinel on each: any two of them may promote one.

    All holds are confirmed by both replicas: so whoever is promoted knows them, on whichever side of a partition.
    """

    name = "hosts"
    mode = "sentinel"
    confirmed = ("lock", "permits", "work")
    replicas = 2

    def __init__(self) -> None:
        self.keys = ["lock:1", "lock:2", "permits:1"]
        self.claims = []
        self.hosts = [Host(number) for number in (1, 2, 3)]
        self._servers: list[Server] = []
        for host in self.hosts:
            # A link without an answer is given up soon.
            options = ["--protected-mode", "no", "--repl-diskless-sync-delay", "0", "--repl-timeout", "10"]
            if self._servers:
                options += ["--replicaof", f"{self.hosts[0].address} {self._servers[0].port}"]
            self._servers.append(Server(*options, under=host.entry, addresses=[host.address]))
        primary = self._servers[0]
        watch = {"sentinel_of": primary.port, "watches": primary.address, "quorum": 2}
        self.sentinels = [Server(under=host.entry, addresses=[host.address], **watch) for host in self.hosts]
        for sentinel in self.sentinels:
            # One that a busy machine holds up for two seconds would do nothing for thirty.
            sentinel.client().execute_command("SENTINEL", "DEBUG", "tilt-trigger", 60_000)
        # The drivers know all Sentinels, as if they were here.
        self.ways = [Proxy(sentinel.port, sentinel.address) for sentinel in self.sentinels]
        self.heal()

    def servers(self) -> list[Server]:
        return self._servers

    def close(self) -> None:
        for sentinel in self.sentinels:
            sentinel.close()
        super().close()

    def primary(self) -> Server:
        """The one that most Sentinels tell of."""
        told: Counter[str] = Counter()
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                told[sentinel.client().sentinel_master("locks")["ip"]] += 1
        address, _ = told.most_common(1)[0]
        return next(server for server in self._servers if server.address == address)

    def heal(self) -> None:
        """Waits until all know one primary, and it has both replicas."""

        def in_order() -> Optional[Server]:
            primary = self.primary()
            for sentinel in self.sentinels:
                told = sentinel.client().sentinel_master("locks")
                if (told["ip"], told["num-other-sentinels"], told["num-slaves"]) != (primary.address, 2, 2):
                    return None
            about = primary.client().info("replication")
            return primary if (about["role"], about["connected_slaves"]) == ("master", 2) else None

        until_followed(in_order, "a group in order")

    def faults(self, chance: random.Random) -> Faults:
        def vanished() -> None:
            self.heal()
            old = self.primary()
            host = next(host for host in self.hosts if host.address == old.address)
            host.cut_off()
            # No end of a connection leaves the host.
            old.kill()
            eventually(lambda: self.primary() is not old, "a failover", within=HEALED_WITHIN)
            host.join()
            old.start()
            # It is a primary, with what was last saved, until a Sentinel has it follow. Promoted before, it stays that.
            self.heal()

        own: Faults = {"server: host vanished": vanished}
        return {**common([self.primary()], chance), **self.parted(self.primary, chance), **own}


class SlotsOnHosts(OnHosts, Slots):
    """A cluster of four hosts. The first shard's holds are confirmed by its replica, on whichever side that is."""

    name = "cluster-hosts"
    whose = "a cluster's "
    parted_for = 12.0
    replicas = 1

    def __init__(self) -> None:
        self.hosts = [Host(number) for number in (1, 2, 3, 4)]
        super().__init__("--protected-mode", "no", "--repl-timeout", "10", hosts=self.hosts)
        self.ways = [Proxy(node.port, node.address) for node in self.cluster.nodes]

    def faults(self, chance: random.Random) -> Faults:
        return {**super().faults(chance), **self.parted(lambda: self.primary, chance)}

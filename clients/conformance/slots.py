"""A cluster for a fleet (soak.py): failovers, and a slot that moves from one shard to another and back."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any, Callable, Iterator, Optional, Sequence

import redis
from servers import SOON, Cluster, Server, eventually, promote, until_primary

from ledger import Claim
from topologies import Faults, Topology, common, for_a_while, until_followed


class Slots(Topology):
    """A cluster. The holds of the first shard, which has a replica, are confirmed; the slot of `moving` moves."""

    name = mode = "cluster"

    def __init__(self, *arguments: str, hosts: Sequence[Any] = ()) -> None:
        self.cluster = Cluster("--enable-debug-command", "yes", *arguments, hosts=hosts)
        self.claims = []
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
        self.slot = int(first.client().execute_command("CLUSTER", "KEYSLOT", self.moving))
        about = first.client().info("server")
        #: Valkey moves slots as a whole from 9.0 on, and Redis from 8.4 on, each with its own commands.
        self.is_valkey = "valkey_version" in about
        numbers = about["valkey_version"] if self.is_valkey else about["redis_version"]
        version = tuple(int(number) for number in str(numbers).split(".")[:2])
        self.is_atomic = version >= ((9, 0) if self.is_valkey else (8, 4))

    def servers(self) -> list[Server]:
        return self.cluster.nodes

    def ports(self) -> list[int]:
        return [node.port for node in self.cluster.nodes]

    def heal(self) -> None:
        """Waits for a cluster that is up, with a replica. It and its primary change also if one was busy too long."""

        def in_order() -> Optional[Server]:
            if self.replica.client().info("replication")["role"] == "master":
                self.primary, self.replica = self.replica, self.primary
            told = self.primary.client().info("replication")
            is_first = (told["role"], told["connected_slaves"]) == ("master", 1)
            return self.primary if is_first and self.cluster.is_in_order() else None

        until_followed(in_order, "a cluster in order")

    def failed_over(self, heal: Callable[[Server], None]) -> None:
        until_primary(self.replica)
        self.primary, self.replica = self.replica, self.primary
        heal(self.replica)
        self.heal()

    def faults(self, chance: random.Random) -> Faults:
        self.heal()

        def ordered() -> None:
            promote(self.replica, self.replica, "CLUSTER", "FAILOVER")
            self.failed_over(lambda old: None)

        def frozen() -> None:
            self.primary.stop()
            self.failed_over(Server.go_on)

        own = {
            "server: failover ordered": ordered,
            "server: primary frozen": frozen,
            "server: slot moved": self.move,
            "server: slot move given up": lambda: self.give_up(chance),
            "server: slot move given up and repeated": lambda: self.give_up(chance, then_move=True),
        }
        if self.is_atomic:
            own["server: slot migrated at once"] = self.migrate
            own["server: slot migration cancelled"] = lambda: self.cancel(chance)
        return {**common(self.cluster.nodes[1:3], chance), **own}

    def move(self) -> None:
        source, target = self.ends
        self.ends.reverse()
        self.cluster.move(self.moving, target, source)

    def give_up(self, chance: random.Random, then_move: bool = False) -> None:
        """Begins to move the slot, once or twice, and gives up before any key is there.

        A key that is not at the source is asked for at the target: it would be left there. So the fault holds the lock.
        """
        with self.held(chance):
            source, target = self.ends
            for _ in range(chance.randrange(1, 3)):
                self.cluster.begin_to_move(self.moving, target, source)
                for_a_while(chance, 0, 1.5)
                for node in self.ends:
                    node.client().execute_command("CLUSTER", "SETSLOT", self.slot, "STABLE")
                for_a_while(chance, 0, 0.3)
            if then_move:
                self.move()

    @contextlib.contextmanager
    def held(self, chance: random.Random) -> Iterator[None]:
        """Holds the lock meanwhile, as another client."""
        token = f"fault-{chance.randrange(2**32)}"
        asked = time.monotonic()
        # Longer than a fault takes.
        words = ("DLOCK.ACQUIRE", self.moving, "PX", 120_000, "BLOCK", int(2_000 * SOON), "TOKEN", token)
        reply = self.ends[0].client().execute_command(*words)
        assert reply is not None, f"nobody is served within {2 * SOON} s"
        granted = time.monotonic()
        try:
            yield
        finally:
            until = time.monotonic()
            self.claims.append(Claim(self.moving, token, reply[1], asked, granted, until))
            self.ends[0].client().execute_command("DLOCK.RELEASE", self.moving, token)

    def migrate(self) -> None:
        """Moves the slot as a whole. The nodes may give that up by themselves."""
        if self.begin_to_migrate() in ("success", "completed"):
            self.has_migrated()

    def has_migrated(self) -> None:
        self.ends.reverse()
        eventually(lambda: self.cluster.serves(self.ends[0], self.slot), "the slot at its new node")

    def cancel(self, chance: random.Random) -> None:
        """Begins to move the slot as a whole, and cancels that. Valkey does not let the target own it before that."""
        if not self.is_valkey:
            # The snapshot rests at each key.
            with self.config(self.ends[0], "rdb-key-save-delay", chance.randrange(200_000)):
                if self.begin_to_migrate(lambda: for_a_while(chance, 0, 1)) == "completed":
                    self.has_migrated()
            return
        source = self.ends[0].client()
        source.execute_command("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", 1)
        try:
            self.begin_to_migrate(lambda: for_a_while(chance, 0, 2))
        finally:
            source.execute_command("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", 0)

    @staticmethod
    @contextlib.contextmanager
    def config(node: Server, name: str, value: object) -> Iterator[None]:
        """Sets a setting that is 0 otherwise."""
        node.client().execute_command("CONFIG", "SET", name, value)
        try:
            yield
        finally:
            node.client().execute_command("CONFIG", "SET", name, 0)

    def begin_to_migrate(self, then_cancel_after: Optional[Callable[[], None]] = None) -> str:
        """Returns how the migration has ended."""
        source, target = self.ends
        # Valkey's commands are for the source, those of Redis for the target.
        client = (source if self.is_valkey else target).client(protocol=2, decode_responses=True)
        if self.is_valkey:
            to = ("SLOTSRANGE", self.slot, self.slot, "NODE", self.cluster.id_of(target))
            client.execute_command("CLUSTER", "MIGRATESLOTS", *to)
            cancel, ask = ("CANCELSLOTMIGRATIONS",), ("GETSLOTMIGRATIONS",)
        else:
            task = client.execute_command("CLUSTER", "MIGRATION", "IMPORT", self.slot, self.slot)
            cancel, ask = ("MIGRATION", "CANCEL", "ID", task), ("MIGRATION", "STATUS", "ID", task)
        if then_cancel_after is not None:
            then_cancel_after()
            with contextlib.suppress(redis.ResponseError):  # It has failed already.
                client.execute_command("CLUSTER", *cancel)

        def ends() -> list[str]:
            jobs = client.execute_command("CLUSTER", *ask)
            # The newest comes first.
            job = dict(zip(jobs[0][::2], jobs[0][1::2]))
            # Redis tries again what has failed.
            ended = ("success", "failed", "cancelled") if self.is_valkey else ("completed", "canceled")
            return [job["state"]] if job["state"] in ended else []

        return str(eventually(ends, "the end of a migration")[0])

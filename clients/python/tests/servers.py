"""Servers with the module, for the tests: on free ports of 127.0.0.1, in folders of their own, ended with the test."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

#: The deadline for things that must happen: much longer than they take.
SOON = 30.0


def eventually(holds: Callable[[], Any], what: str, within: float = SOON) -> Any:
    """Waits until this is true, and returns it."""
    deadline = time.monotonic() + within
    while True:
        # A server that changes its role closes connections.
        value = None
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"still not true after {within} s: {what}"
        time.sleep(0.02)


def until_waiting(count_waiters: Callable[[], int], count: int) -> None:
    eventually(lambda: count_waiters() == count, f"{count} waiters")


def free_port() -> int:
    """Returns a free port. It and that of its cluster bus, 10000 above, are below those of outgoing connections."""
    while True:
        port = random.randrange(11_000, 21_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as bus:
            one.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """One server. It may be stopped, killed and started again on its port.

    `under` are the words before its program, `addresses` where it listens; it is known by the last of them.
    """

    def __init__(
        self,
        *arguments: str,
        sentinel_of: Optional[int] = None,
        watches: str = "127.0.0.1",
        quorum: int = 1,
        environment: Optional[dict[str, str]] = None,
        under: Sequence[str] = (),
        addresses: Sequence[str] = ("127.0.0.1",),
        has_module: bool = True,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dsync-client-")
        self._arguments = list(arguments)
        self._sentinel_of = sentinel_of
        self._monitor = f"monitor locks {watches} {sentinel_of} {quorum}"
        self._environment = environment or {}
        self._under = under
        self._module = ["--loadmodule", os.environ["DSYNC_TEST_MODULE"]] if has_module else []
        self._addresses = addresses
        self._process: Optional[subprocess.Popen[bytes]] = None
        #: Keeps the port of a server that is dead, so that no other one answers there.
        self._tombstone: Optional[socket.socket] = None
        # Another program may take the port before the server does.
        for _ in range(20):
            self.port = free_port()
            if self._try_to_start():
                return
        raise AssertionError(f"no server has started:\n{self.log()}")

    @property
    def address(self) -> str:
        return self._addresses[-1]

    @property
    def folder(self) -> str:
        """Where its files are."""
        return self._folder.name

    def start(self) -> None:
        self._give_port_back()
        assert self._try_to_start(), f"the server does not start again:\n{self.log()}"

    def _try_to_start(self) -> bool:
        command = [*self._under, os.environ["DSYNC_TEST_SERVER"]]
        if self._sentinel_of is not None:
            config = Path(self._folder.name, "sentinel.conf")
            config.write_text(self._sentinel_lines())
            command += [str(config), "--sentinel"]
        else:
            command += ["--save", "", *self._module]
        command += [*self._port_words(), "--bind", *self._addresses, "--dir", self._folder.name]
        command += ["--logfile", "log", *self._arguments]
        environment = {**os.environ, **self._environment}
        # A preloaded library finds the files there, also before the server changes to it.
        folder = self.folder if self._environment else None
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder
        )
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.client().info("server")["process_id"] == self._process.pid:
                    return True
                break
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.02)
        self.kill()
        self._give_port_back()
        return False

    def _port_words(self) -> list[str]:
        return ["--port", str(self.port)]

    def _sentinel_lines(self) -> str:
        """Returns the configuration of a Sentinel."""
        lines = (self._monitor, "down-after-milliseconds locks 1000", "failover-timeout locks 3000")
        return "".join(f"sentinel {line}\n" for line in lines)

    def log(self) -> str:
        path = Path(self._folder.name, "log")
        return path.read_text()[-4_000:] if path.exists() else "(no log)"

    def client(self, **settings: Any) -> Any:
        if self.address != "127.0.0.1":
            # Nobody answers from a host that is cut off, however often he is asked.
            once = Retry(NoBackoff(), 0)
            settings = {"socket_timeout": 5, "socket_connect_timeout": 1, "retry": once, **settings}
        return redis.Redis(host=self.address, port=self.port, **settings)

    def stop(self) -> None:
        """The process stands still, as in a frozen virtual machine."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            # Bound, and nobody listens: connections are refused.
            self._tombstone = socket.socket()
            self._tombstone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                self._tombstone.bind((self.address, self.port))

    def _give_port_back(self) -> None:
        if self._tombstone is not None:
            self._tombstone.close()
            self._tombstone = None

    def primary_of(self, key: str) -> Server:
        return self

    def ports(self) -> list[int]:
        return [self.port]

    def close(self) -> None:
        self.kill()
        self._give_port_back()
        self._folder.cleanup()


@contextlib.contextmanager
def closing(*servers: Server) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.close()


def replica_of(primary: Server, *arguments: str, **settings: Any) -> Server:
    """Starts a replica, and returns it when it has everything."""
    address = f"{primary.address} {primary.port}"
    replica = Server("--replicaof", address, "--repl-diskless-sync-delay", "0", *arguments, **settings)
    until_in_sync(primary)
    return replica


def until_in_sync(primary: Server) -> None:
    """Waits until all its replicas, at least one, have confirmed what the primary has written so far."""

    written = primary.client().info("replication")["master_repl_offset"]

    def is_in_sync() -> bool:
        told = primary.client().info("replication")
        replicas = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        in_sync = [replica["state"] == "online" and replica["offset"] >= written for replica in replicas]
        return bool(in_sync) and all(in_sync)

    eventually(is_in_sync, "a replica in sync")


def until_primary(server: Server) -> None:
    eventually(lambda: server.client().info("replication")["role"] == "master", "a failover")


def promote(replica: Server, asked: Server, *command: str) -> None:
    """Asks for a failover until it has happened: on a busy machine servers give it up after a few seconds."""
    asks_again_at = 0.0

    def is_promoted() -> bool:
        nonlocal asks_again_at
        if replica.client().info("replication")["role"] == "master":
            return True
        if time.monotonic() >= asks_again_at:
            asks_again_at = time.monotonic() + 7
            with contextlib.suppress(redis.ResponseError):  # One is under way.
                asked.client().execute_command(*command)
        return False

    eventually(is_promoted, "a failover")


class Watched:
    """A primary and its replica, with a Sentinel that calls them ``locks``."""

    def __init__(self, *arguments: str, environments: Sequence[dict[str, str]] = ({}, {})) -> None:
        self.primary = Server(*arguments, environment=environments[0])
        self.replica = replica_of(self.primary, *arguments, environment=environments[1])
        self.sentinel = Server(sentinel_of=self.primary.port)
        guard = self.sentinel.client()
        eventually(lambda: guard.sentinel_slaves("locks"), "a replica that the sentinel knows")

    def primary_of(self, key: str) -> Server:
        return self.primary

    def switch(self, key: str) -> Server:
        """Has the replica take over. Returns it when the old primary has followed, which serves on until then."""
        until_in_sync(self.primary)
        promote(self.replica, self.sentinel, "SENTINEL", "FAILOVER", "locks")
        old = self.primary.client()
        eventually(lambda: old.info("replication")["role"] == "slave", "the old primary as a replica")
        return self.replica

    def freeze(self, key: str) -> Server:
        """Stops the primary as it is. Returns the replica when it has taken over."""
        until_in_sync(self.primary)
        self.primary.stop()
        until_primary(self.replica)
        return self.replica

    def stop(self) -> None:
        """Stops everything as it is."""
        for server in (self.primary, self.replica, self.sentinel):
            server.stop()

    def kill(self) -> None:
        for server in (self.primary, self.replica, self.sentinel):
            server.kill()

    def ports(self) -> list[int]:
        """Returns the ports that an error may name: a Sentinel's if none of them answers."""
        return [self.primary.port, self.replica.port, self.sentinel.port]

    def close(self) -> None:
        for server in (self.primary, self.replica, self.sentinel):
            server.close()


class Cluster:
    """Three primaries, and a replica of the first one: here, or each on one of four hosts."""

    def __init__(self, *arguments: str, hosts: Sequence[Any] = ()) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0"]
        options += ["--appendonly", "no", *arguments]
        here: list[dict[str, Any]] = [{}] * 4
        places = [{"under": host.entry, "addresses": [host.address]} for host in hosts] or here
        self.nodes: list[Server] = [Server(*options, **place) for place in places]
        try:
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        first = self.nodes[0].client()
        for node in self.nodes[1:]:
            first.execute_command("CLUSTER", "MEET", node.address, node.port)
        for index, node in enumerate(self.nodes[:3]):
            slots = range(index * 5_462, min((index + 1) * 5_462, 16_384))
            node.client().execute_command("CLUSTER", "ADDSLOTSRANGE", slots[0], slots[-1])
        self.replica = self.nodes[3]
        eventually(lambda: self._all_know(4), "four nodes that know each other")
        self.replica.client().execute_command("CLUSTER", "REPLICATE", self.id_of(self.nodes[0]))
        eventually(self.is_in_order, "a cluster in order")
        until_in_sync(self.nodes[0])

    def _all_know(self, count: int) -> bool:
        return all(node.client().execute_command("CLUSTER", "NODES").count(b"\n") == count for node in self.nodes)

    def is_in_order(self) -> bool:
        """Whether all nodes say so."""
        told = [node.client().execute_command("CLUSTER", "INFO") for node in self.nodes]
        return all(b"cluster_state:ok" in info for info in told)

    def id_of(self, node: Server) -> str:
        name = node.client().execute_command("CLUSTER", "MYID")
        return name.decode() if isinstance(name, bytes) else str(name)

    def serves(self, node: Server, slot: int) -> bool:
        """Whether all nodes have heard that this one serves the slot."""

        def owner(told: Any) -> Any:
            return next(row[2][1] for row in told if row[0] <= slot <= row[1])

        return all(owner(other.client().execute_command("CLUSTER", "SLOTS")) == node.port for other in self.nodes)

    def owner_of(self, key: str) -> Server:
        slot = int(self.nodes[0].client().execute_command("CLUSTER", "KEYSLOT", key))
        return self.nodes[slot // 5_462]

    def primary_of(self, key: str) -> Server:
        return self.owner_of(key)

    def switch(self, key: str) -> Server:
        """Has the replica take over. Returns it when it has."""
        until_in_sync(self.nodes[0])
        promote(self.replica, self.replica, "CLUSTER", "FAILOVER")
        return self.replica

    def freeze(self, key: str) -> Server:
        """Stops the first primary as it is. Returns its replica when it has taken over."""
        until_in_sync(self.nodes[0])
        self.nodes[0].stop()
        until_primary(self.replica)
        return self.replica

    def stop(self) -> None:
        """Stops everything as it is."""
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    def key_on(self, node: Server) -> str:
        """Returns a key that this primary has."""
        return next(key for key in (f"k{number}" for number in range(1_000)) if self.owner_of(key) is node)

    def client(self, **settings: Any) -> Any:
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[1].port, **settings)

    def begin_to_move(self, key: str, target: Server, source: Optional[Server] = None) -> None:
        """From here on the owner, the first one if none is named, asks for keys that it has not at the target."""
        source = source or self.owner_of(key)
        slot = int(source.client().execute_command("CLUSTER", "KEYSLOT", key))
        target.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move(self, key: str, target: Server, source: Optional[Server] = None) -> None:
        """Moves the slot of a key with everything in it, as redis-cli does."""
        source = source or self.owner_of(key)
        slot = self.move_keys(key, target, source)
        target_id = self.id_of(target)
        for node in (target, source, *self.nodes):
            with contextlib.suppress(redis.ResponseError):  # Replicas refuse it, and learn it from the others.
                node.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def move_keys(self, key: str, target: Server, source: Server) -> int:
        """Begins to move the slot of a key, and moves all keys in it. Returns the slot."""
        self.begin_to_move(key, target, source)
        slot = int(source.client().execute_command("CLUSTER", "KEYSLOT", key))
        while keys := source.client().execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.client().execute_command("MIGRATE", target.address, target.port, "", 0, 5_000, "KEYS", *keys)
        return slot

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class Proxy:
    """A way to a server that can be cut: what is sent then is lost, and no connection is closed."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._target = (address, port)
        self._is_cut = threading.Event()
        self._is_deaf = threading.Event()
        self._deafening = b""
        self._delay = 0.0
        #: What the server was sent.
        self.sent = bytearray()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut.set()

    def cut_answers(self) -> None:
        """What is sent still arrives, but nobody hears of it."""
        self._is_deaf.set()

    def cut_answers_from(self, word: bytes) -> None:
        """The same, from the first request on that has this word."""
        self._deafening = word

    def cut_new_connections(self) -> None:
        """What is sent over connections that are opened from now on is lost. The old ones go on."""
        self._is_cut = threading.Event()
        self._is_cut.set()

    def delay_answers(self, seconds: float) -> None:
        """Each answer arrives so much later."""
        self._delay = seconds

    def mend(self) -> None:
        """New connections work again. The old ones stay dead, as after the loss of a route."""
        self._is_cut = threading.Event()
        self._is_deaf = threading.Event()
        self._deafening = b""

    def close(self) -> None:
        self._listener.close()
        for one in list(self._sockets):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                if self._is_cut.is_set():
                    continue
                try:
                    far = socket.create_connection(self._target, timeout=1)
                except OSError:  # Nobody listens there, so nobody does here.
                    near.close()
                    continue
                far.settimeout(None)
                self._sockets.append(far)
                for ends in ((near, far, self._is_cut, self._is_cut), (far, near, self._is_cut, self._is_deaf)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(
        self, source: socket.socket, sink: socket.socket, is_cut: threading.Event, is_deaf: threading.Event
    ) -> None:
        is_answer = is_deaf is not is_cut
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if is_answer:
                    time.sleep(self._delay)
                else:
                    self.sent += data
                    if self._deafening and self._deafening in data:
                        self._is_deaf.set()
                if not (is_cut.is_set() or is_deaf.is_set()):
                    sink.sendall(data)
            if not (is_cut.is_set() or is_deaf.is_set()):
                sink.shutdown(socket.SHUT_WR)

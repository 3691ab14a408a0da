"""Runs the Python lines of docs/clients.md against servers whose roles change, and those of docs/failover.md.

python_snippet.sh runs this file. DSYNC_TEST_SERVER is the server's program, DSYNC_TEST_MODULE the module. The lines of
docs/clients.md get a shorter lease and an address that always leads to the present primary, as a service address or a proxy
does.
"""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
CONFIRMING_PAGE = PAGE.with_name("failover.md")
SOON = 30  # seconds


def eventually(what, condition):
    """Waits until the condition is true. Fails with `what` if that does not happen soon."""
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        try:
            if condition():
                return
        except redis.RedisError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"not within {SOON} s: {what}")


def free_port():
    # Below the ports that Linux gives to outgoing connections: none of them takes the port of a server that starts again.
    while True:
        port = random.randrange(11_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A server with the module, on a free port, in a directory of its own."""

    def __init__(self, directory, *options):
        os.makedirs(directory)
        while True:
            self.port = free_port()
            self.process = subprocess.Popen(
                [os.environ["DSYNC_TEST_SERVER"], "--port", str(self.port), "--bind", "127.0.0.1", "--dir", directory]
                + ["--save", "", "--logfile", "log", "--loadmodule", os.environ["DSYNC_TEST_MODULE"]]
                + ["--repl-diskless-sync-delay", "0", *options]
            )
            self.client = redis.Redis(port=self.port, decode_responses=True)
            eventually("a server that answers or has ended", lambda: self.process.poll() is not None or self.client.ping())
            if self.process.poll() is None:
                return
            # Another program has taken the port in the meantime.

    def info(self, section):
        return self.client.info(section)

    def hand_over_to(self, other):
        """Makes the other server, which must be a replica of this one, the primary."""
        eventually("a replica that follows", lambda: other.info("replication")["master_link_status"] == "up")
        # Refused until the replica, which follows already, has reported that for the first time.
        failover = ("FAILOVER", "TO", "127.0.0.1", other.port, "TIMEOUT", 10000)
        eventually("a failover that begins", lambda: self.client.execute_command(*failover))
        eventually("a new primary", lambda: other.info("replication")["role"] == "master")

    def waiters(self):
        return self.info("dsync")["dsync_waiters"]

    def calls(self, command):
        """How many calls of the command have been carried out. Refused ones do not count."""
        stats = {name.lower(): value for name, value in self.info("commandstats").items()}
        counts = stats.get(f"cmdstat_{command}", {"calls": 0, "failed_calls": 0})
        return counts["calls"] - counts["failed_calls"]


class Address:
    """A port that forwards each new connection to the server that is the target then."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.target.port))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    @staticmethod
    def _forward(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def lines_of_the_page(address):
    """The names that the page's block of Python with imports defines, for this address."""
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```python\n(import .*?)```", text, re.S).group(1)
    setting = "LEASE, BLOCK = 30, 60"
    assert setting in block
    os.environ["REDIS_URL"] = f"redis://127.0.0.1:{address.port}"
    names = {}
    exec(compile(block.replace(setting, "LEASE, BLOCK = 6, 40"), str(PAGE), "exec"), names)
    return names


def usage_of_the_page(names):
    """Runs the block of Python that uses these names."""
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```python\n(with lock\(\S+\) as \(fence, lost\):.*?)```", text, re.S).group(1)
    exec(compile(block, str(PAGE), "exec"), names)


def acquire_and_hold_over_failovers(first, second, address):
    names = lines_of_the_page(address)
    _, fence_before = first.client.execute_command("DLOCK.ACQUIRE", "jobs:1", "EX", 600, "TOKEN", "before")
    fences, end, ended = [], threading.Event(), threading.Event()

    def parts():
        yield 1
        while not end.wait(0.05):
            yield 2

    errors = []
    names |= {"work": parts(), "write": lambda part, fence: fences.append(fence)}

    def run():
        try:
            usage_of_the_page(names)
        except Exception as error:
            errors.append(error)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    eventually("a request that waits", lambda: first.waiters() == 1 or errors)
    assert not errors, errors

    # The primary changes while the request waits: it waits at the new one.
    first.hand_over_to(second)
    address.target = second
    eventually("the same request at the new primary", lambda: second.waiters() == 1 or errors)
    assert not errors, errors
    assert not fences
    assert second.client.execute_command("DLOCK.RELEASE", "jobs:1", "before") == 1
    eventually("work", lambda: fences)
    assert fences[0] > fence_before

    # It changes back while the lock is held: the new primary gets the renewals, and the hold lives on.
    before = first.calls("dlock.renew")
    second.hand_over_to(first)
    address.target = first
    eventually("renewals at the new primary", lambda: first.calls("dlock.renew") >= before + 2)
    assert not ended.is_set() and not errors, errors
    assert len(set(fences)) == 1, "one hold all the time"

    # An operator takes the lock away: the worker stops at its next renewal.
    assert first.client.execute_command("DLOCK.REVOKE", "jobs:1", fences[0]) == 1
    eventually("an end of the work", ended.is_set)
    assert "was lost" in str(errors[0]), errors
    assert first.client.exists("jobs:1") == 0


def give_up(first, address):
    """A wait that ends in vain withdraws its request."""
    names = lines_of_the_page(address)
    names["BLOCK"] = 0.5
    first.client.execute_command("DLOCK.ACQUIRE", "jobs:2", "EX", 600, "TOKEN", "before")
    before = first.calls("dlock.release")
    try:
        with names["lock"]("jobs:2"):
            raise AssertionError("the lock is held by another")
    except TimeoutError as error:
        assert "still held" in str(error), error
    assert first.calls("dlock.release") == before + 1
    eventually("an empty queue", lambda: first.waiters() == 0)


def release_what_no_replica_and_no_disk_has(first, second):
    """A grant that WAIT or WAITAOF confirms is kept, any other is released."""
    block = re.search(r"```python\n(def .*?)```", CONFIRMING_PAGE.read_text(encoding="utf-8"), re.S).group(1)
    names = {}
    exec(compile(block, str(CONFIRMING_PAGE), "exec"), names)
    client = redis.Redis(port=first.port, decode_responses=True)
    confirmations = {"acquire_on_replica": ("on-replica", lambda: second.client.exists("on-replica") == 1)}
    if "waitaof" in {name.lower() for name in client.command()}:
        first.client.config_set("appendonly", "yes")
        confirmations["acquire_on_disk"] = ("on-disk", lambda: True)
    for function, (key, is_there) in confirmations.items():
        eventually("a replica that follows", lambda: second.info("replication")["master_link_status"] == "up")
        acquire = names[function]
        grant = acquire(client, key, "confirmed", within=SOON)
        assert grant and grant[0] == "confirmed" and is_there(), grant
        assert client.execute_command("DLOCK.RELEASE", key, "confirmed") == 1
    second.client.execute_command("REPLICAOF", "NO", "ONE")
    eventually("a primary without replicas", lambda: first.info("replication")["connected_slaves"] == 0)
    assert names["acquire_on_replica"](client, "on-replica", "unconfirmed") is None
    assert client.exists("on-replica") == 0


def main():
    directory = tempfile.mkdtemp(prefix="dsync-snippet-")
    servers = []
    try:
        first = Server(f"{directory}/first")
        servers.append(first)
        second = Server(f"{directory}/second", "--replicaof", f"127.0.0.1 {first.port}")
        servers.append(second)
        address = Address(first)
        acquire_and_hold_over_failovers(first, second, address)
        give_up(first, address)
        release_what_no_replica_and_no_disk_has(first, second)
    except BaseException:
        for server in ("first", "second"):
            log = Path(directory, server, "log")
            print(log, log.read_text() if log.exists() else "is not there", sep="\n")
        raise
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()
        shutil.rmtree(directory, ignore_errors=True)
    print("dsync: the Python lines of docs/clients.md follow the primary, those of docs/failover.md confirm grants.")


if __name__ == "__main__":
    main()

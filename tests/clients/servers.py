"""Servers with the module whose roles change, for the tests that run the Python lines of the documentation.

DSYNC_TEST_SERVER is the server's program, DSYNC_TEST_MODULE the module.
"""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis

SOON = 60  # seconds


def eventually(what, condition, within=SOON):
    """Waits until the condition is true. Fails with `what` if that does not happen within so many seconds."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if condition():
                return
        except redis.RedisError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"not within {within} s: {what}")


def free_port():
    # Below the ports that Linux gives to outgoing connections: none of them takes the port of a server that starts
    # again.
    while True:
        port = random.randrange(11_000, 21_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A server with the module, on a free port, in a directory of its own, with these lines in its configuration."""

    def __init__(self, directory, *lines):
        os.makedirs(directory)
        # A Sentinel writes there whom the server follows.
        self._config = Path(directory, "server.conf")
        while True:
            self.port = free_port()
            self.client = redis.Redis(port=self.port, decode_responses=True)
            own = (f"port {self.port}", "bind 127.0.0.1", f"dir {directory}", 'save ""', "logfile log")
            module = f"loadmodule {os.environ['DSYNC_TEST_MODULE']}"
            self._config.write_text("\n".join((*own, module, *lines, "")), encoding="utf-8")
            self.start()
            if self.process.poll() is None:
                return
            # Another program has taken the port in the meantime.

    def start(self):
        self.process = subprocess.Popen([os.environ["DSYNC_TEST_SERVER"], str(self._config)])
        eventually("a server that answers or has ended", lambda: self.process.poll() is not None or self.client.ping())

    def end(self):
        self.process.kill()
        self.process.wait()

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


@contextlib.contextmanager
def primary_and_replica():
    """Two servers, which end with the block. Prints their logs if the block fails."""
    directory = tempfile.mkdtemp(prefix="dsync-python-")
    servers = []
    soon = "repl-diskless-sync-delay 0"
    try:
        first = Server(f"{directory}/first", soon)
        servers.append(first)
        servers.append(Server(f"{directory}/second", soon, f"replicaof 127.0.0.1 {first.port}"))
        yield tuple(servers)
    except BaseException:
        for server in ("first", "second"):
            log = Path(directory, server, "log")
            print(log, log.read_text() if log.exists() else "is not there", sep="\n")
        raise
    finally:
        for server in servers:
            server.end()
        shutil.rmtree(directory, ignore_errors=True)

"""The planned switch under Sentinel that docs/sentinel.md recommends, with the settings of that page.

python_snippet.sh runs this file, and servers.py says what it needs. After CLIENT PAUSE and SENTINEL FAILOVER all
sentinels name the new primary. The old one is made a replica then, and a request that waited there is granted at the
new one. With ROUNDS=n this file measures n switches instead, and as many of each other kind of gap.
"""

import contextlib
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel
from servers import SOON, Server, eventually, free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sentinel.md"
NEVER = Retry(NoBackoff(), 0)


def settings_of_the_page(name):
    """The lines of the configuration file that begins with this comment."""
    page = PAGE.read_text(encoding="utf-8")
    return re.search(rf"```\n# {re.escape(name)}[^\n]*\n(.*?)```", page, re.S).group(1).splitlines()


class Group:
    """A primary and two replicas under three sentinels, with the settings of the page, their ports and paths apart."""

    def __init__(self, directory, at_end):
        lines = [
            line for line in settings_of_the_page("redis.conf") if not line.startswith(("#", "loadmodule", "replicaof"))
        ]
        self.servers = []
        for number in range(3):
            follow = [f"replicaof 127.0.0.1 {self.servers[0].port}"] if number else []
            self.servers.append(Server(f"{directory}/server-{number}", *lines, *follow))
            at_end.callback(self.servers[-1].end)
        self.ports = [self._start_sentinel(f"{directory}/sentinel-{number}", at_end) for number in range(3)]
        self.sentinels = [redis.Redis(port=port, decode_responses=True) for port in self.ports]
        eventually("sentinels that know all", self._are_acquainted)

    def _start_sentinel(self, directory, at_end):
        os.makedirs(directory)
        port = free_port()
        lines = "\n".join(settings_of_the_page("sentinel.conf"))
        lines = lines.replace("192.0.2.1 6379", f"127.0.0.1 {self.servers[0].port}").replace("26379", str(port))
        config = Path(directory, "sentinel.conf")
        config.write_text(f"{lines}\nbind 127.0.0.1\ndir {directory}\nlogfile {directory}/log\n", encoding="utf-8")
        process = subprocess.Popen([os.environ["DSYNC_TEST_SERVER"], str(config), "--sentinel"])
        at_end.callback(process.wait)
        at_end.callback(process.kill)
        return port

    def _are_acquainted(self):
        def knows_all(sentinel):
            master = sentinel.sentinel_master("locks")
            return (master["num-slaves"], master["num-other-sentinels"], master["flags"]) == (2, 2, "master")

        return all(knows_all(sentinel) for sentinel in self.sentinels)

    def named(self):
        """The ports that the sentinels name."""
        return {sentinel.sentinel_get_master_addr_by_name("locks")[1] for sentinel in self.sentinels}

    def primary(self):
        """The server that all sentinels name, if it is a primary with both replicas."""
        [port] = self.named()
        server = next(server for server in self.servers if server.port == port)
        state = server.info("replication")
        return server if state["role"] == "master" and state["connected_slaves"] == 2 else None

    def settle(self):
        """Waits until all is as the sentinels want it, and returns the primary."""
        eventually("a group at rest", lambda: self._are_acquainted() and len(self.named()) == 1 and self.primary())
        return self.primary()

    def client(self):
        """A client that asks the sentinels for the primary whenever it connects."""
        asked = Sentinel([("127.0.0.1", port) for port in self.ports], socket_timeout=2)
        return asked.master_for("locks", socket_timeout=SOON, decode_responses=True)

    def ask(self, client, *words):
        """Repeats the request until it is answered, at the primary that the sentinels name then."""
        reply = []

        def is_answered():
            client.connection_pool.disconnect()
            reply[:] = [client.execute_command(*words)]
            return True

        eventually(f"an answer to {words[0]}", is_answered)
        return reply[0]


def sentinel_failover(group, primary):
    # Refused until the sentinel has heard from a replica that can be promoted.
    eventually("a switch that begins", lambda: group.sentinels[0].execute_command("SENTINEL", "FAILOVER", "locks"))


def lines_of_the_page(group, primary):
    primary.client.execute_command("CLIENT", "PAUSE", 10000, "WRITE")
    sentinel_failover(group, primary)
    # It takes a second. After FAILOVER TO it would take 25 and more.
    eventually("sentinels that name another", lambda: group.named().isdisjoint({primary.port}), within=20)
    [port] = group.named()
    primary.client.execute_command("REPLICAOF", "127.0.0.1", port)
    primary.client.execute_command("CLIENT", "UNPAUSE")


def killed(group, primary):
    primary.end()
    eventually("sentinels that name another", lambda: group.named().isdisjoint({primary.port}))
    primary.start()


def restarted(group, primary):
    primary.process.terminate()
    primary.process.wait()
    primary.start()


def failover_to(group, primary):
    replica = next(server for server in group.servers if server is not primary)
    # Refused until the replica has reported that it follows.
    failover = ("FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", 10000)
    eventually("a switch that begins", lambda: primary.client.execute_command(*failover))


def waiter_is_served(group):
    """A request waits at the old primary. It is granted at the new one, with a higher fence."""
    old = group.settle()
    client = group.client()
    _, fence = group.ask(client, "DLOCK.ACQUIRE", "jobs:1", "EX", 600, "TOKEN", "before")
    assert client.wait(2, SOON * 1000) == 2
    grants = []
    wait = ("DLOCK.ACQUIRE", "jobs:1", "EX", 60, "TOKEN", "waiter", "BLOCK", SOON * 1000)
    waiter = threading.Thread(target=lambda: grants.append(group.ask(group.client(), *wait)), daemon=True)
    waiter.start()
    eventually("a request that waits", lambda: old.waiters() == 1)

    lines_of_the_page(group, old)
    # The pause is over: a sentinel whose PUBLISH waits there for its end calls the old primary down.
    assert redis.Redis(port=old.port, socket_timeout=2, retry=NEVER).publish("any channel", "") == 0
    # The sentinels themselves would let it wait at the old primary for another twenty seconds.
    [new] = (server for server in group.servers if {server.port} == group.named())
    eventually("the same request at the new primary", lambda: new.waiters() == 1, within=10)
    assert group.settle() is new
    assert group.ask(client, "DLOCK.RELEASE", "jobs:1", "before") == 1
    waiter.join(SOON)
    assert grants and grants[0][0] == "waiter" and grants[0][1] > fence, grants


def measure(group, gap):
    """Lets a client that asks the sentinels take one new lock after the other over a gap.

    Returns the seconds until all sentinels name a new primary, 0 if they never do; the longest time in seconds without
    a grant; and of the grants that the last primary does not have the number, and how many of these one replica and two
    had confirmed.
    """
    old = group.settle()
    grants, confirmed, since = [time.monotonic()], {}, time.monotonic()
    happens = threading.Thread(target=gap, args=(group, old), daemon=True)
    happens.start()
    named, at_rest_since = 0.0, None
    # The old primary is corrected last, so that nothing happens any more once the new one has both replicas.
    while at_rest_since is None or time.monotonic() < at_rest_since + 3:
        with contextlib.suppress(redis.RedisError):
            port = group.sentinels[0].sentinel_get_master_addr_by_name("locks")[1]
            with redis.Redis(port=port, socket_timeout=0.2, retry=NEVER) as client:
                key = f"lock:{since}:{len(grants)}"
                client.execute_command("DLOCK.ACQUIRE", key, "EX", 600)
                grants.append(time.monotonic())
                confirmed[key] = 0
                confirmed[key] = client.wait(2, 50)
        with contextlib.suppress(redis.RedisError, ValueError):
            if not named and group.named().isdisjoint({old.port}):
                named = time.monotonic() - since
            is_at_rest = not happens.is_alive() and group.primary() and (named or gap is restarted)
            at_rest_since = (at_rest_since or time.monotonic()) if is_at_rest else None
        time.sleep(0.02)
    new = group.settle()
    lost = [count for key, count in confirmed.items() if not new.client.exists(key)]
    pauses = [after - before for before, after in zip(grants, grants[1:])]
    return named, max(pauses), len(lost), sum(count >= 1 for count in lost), sum(count >= 2 for count in lost)


GAPS = (lines_of_the_page, sentinel_failover, killed, restarted, failover_to)
#: What measure() returns.
COLUMNS = (
    "s until another is named",
    "s without a grant",
    "grants lost",
    "of these confirmed by one",
    "of these confirmed by two",
)


def main():
    with contextlib.ExitStack() as at_end:
        # A child of a server that was killed may still write there.
        folder = tempfile.TemporaryDirectory(prefix="dsync-sentinel-", ignore_cleanup_errors=True)
        group = Group(at_end.enter_context(folder), at_end)
        rounds = int(os.environ.get("ROUNDS", "0"))
        for gap in GAPS if rounds else ():
            columns = zip(*[measure(group, gap) for _ in range(rounds)])
            for what, got in zip(COLUMNS, columns):
                middle, low, high = statistics.median(got), min(got), max(got)
                print(f"{gap.__name__}: {middle:.1f} {what} ({low:.1f} to {high:.1f}, {rounds} times)", flush=True)
        if not rounds:
            waiter_is_served(group)
            print("dsync: after SENTINEL FAILOVER all sentinels name the new primary, and a waiter is served there.")


if __name__ == "__main__":
    main()

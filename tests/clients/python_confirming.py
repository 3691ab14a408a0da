"""Runs the Python lines of docs/failover.md: holds that count only from requests that a replica, or the disk, has.

python_snippet.sh runs this file, and servers.py says what it needs.
"""

import re
import time
from pathlib import Path

import redis
from servers import SOON, eventually, primary_and_replica

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failover.md"
LEASE = 4  # seconds


def lines_of_the_page():
    """The names that the page's block of Python with imports defines."""
    block = re.search(r"```python\n(import .*?)```", PAGE.read_text(encoding="utf-8"), re.S).group(1)
    names = {}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait_for_replica(second):
    eventually("a replica that follows", lambda: second.info("replication")["master_link_status"] == "up")


def confirmed_by_disk(first, names):
    """What is on the disk is kept. Only some servers know WAITAOF."""
    client = redis.Redis(port=first.port, decode_responses=True)
    if "waitaof" not in {name.lower() for name in client.command()}:
        return
    first.client.config_set("appendonly", "yes")
    on_disk = ("WAITAOF", 1, 0, SOON * 1000)
    (token, _), until = names["acquire_confirmed"](client, "on-disk", "a", confirmation=on_disk)
    assert token == "a"
    assert names["renew_confirmed"](client, "on-disk", "a", until, confirmation=on_disk) > until


def promoted_behind_a_living_primary(first, second, names):
    """Renewals that no replica has do not count: the new primary's next holder comes when the old one has stopped."""
    client = redis.Redis(port=first.port, decode_responses=True)
    on_replica = ("WAIT", 1, SOON * 1000)
    wait_for_replica(second)
    _, until = names["acquire_confirmed"](client, "on-replica", "a", LEASE, on_replica)
    assert second.client.exists("on-replica") == 1
    confirmed = names["renew_confirmed"](client, "on-replica", "a", until, LEASE, on_replica)
    assert confirmed > until, "a confirmed renewal counts"

    second.client.execute_command("REPLICAOF", "NO", "ONE")
    eventually("a primary without replicas", lambda: first.info("replication")["connected_slaves"] == 0)
    until = confirmed
    while now() < until:
        until = names["renew_confirmed"](client, "on-replica", "a", until, LEASE, ("WAIT", 1, 100))
        assert until == confirmed, "the lease goes on with a renewal that no replica has"
    # The old primary still renews the hold, and the new one grants the lock to another, but not before.
    assert first.client.execute_command("DLOCK.CHECK", "on-replica", "a") > 0
    assert second.client.execute_command("DLOCK.ACQUIRE", "on-replica", "EX", 60, "TOKEN", "b", "BLOCK", SOON * 1000)
    assert now() > until


def grant_without_replica(first, names):
    """A grant that no replica has is released."""
    client = redis.Redis(port=first.port, decode_responses=True)
    assert names["acquire_confirmed"](client, "unconfirmed", "a", confirmation=("WAIT", 1, 100)) is None
    assert client.exists("unconfirmed") == 0


def end_is_told(first, names):
    """A renewal of a hold that has ended raises."""
    try:
        names["renew_confirmed"](first.client, "unconfirmed", "a", now(), confirmation=("WAIT", 0, 100))
    except RuntimeError as error:
        assert "was lost" in str(error), error
    else:
        raise AssertionError("the end is not told")


def main():
    with primary_and_replica() as (first, second):
        names = lines_of_the_page()
        confirmed_by_disk(first, names)
        promoted_behind_a_living_primary(first, second, names)
        grant_without_replica(first, names)
        end_is_told(first, names)
    print("dsync: the Python lines of docs/failover.md confirm grants and renewals.")


if __name__ == "__main__":
    main()

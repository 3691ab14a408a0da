"""Hosts that can be cut off from each other: network namespaces, as in testkit/src/hosts.rs.

The runner enters a namespace of its own first, with two bridges. It and the drivers are a host at the near one; what is
at the far one is on the other side of a split.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

LEAVE_OUT = "DSYNC_TEST_NO_NAMESPACES"
INSIDE = "DSYNC_SOAK_IS_INSIDE"
#: The runner's address, and how those of the hosts begin.
HERE, SUBNET = "10.77.0.254", "10.77.0."
#: As root, and otherwise as root of a user namespace.
WAYS: list[list[str]] = [["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]]


def way() -> Optional[list[str]]:
    """Returns the words before a command that runs in a new network namespace. None, said aloud, if there are none."""
    if os.environ.get(LEAVE_OUT, "0") not in ("", "0"):
        print(f"left out: {LEAVE_OUT} is set, so no host is cut off", flush=True)
        return None
    for words in WAYS:
        try:
            if subprocess.run([*words, "ip", "link"], capture_output=True, check=False).returncode == 0:
                return words
        except FileNotFoundError:
            continue
    print("left out: there are no network namespaces here, so no host is cut off", flush=True)
    return None


def enter(words: list[str]) -> None:
    """Runs this program again in a network namespace, unless it does already."""
    if os.environ.get(INSIDE) != str(os.getpid()):
        # unshare replaces itself by the program, which keeps the process id.
        os.environ[INSIDE] = str(os.getpid())
        sys.stdout.flush()
        os.execvp(words[0], [*words, sys.executable, *sys.argv])
    ip("link set lo up")
    for bridge in ("near", "far"):
        ip(f"link add {bridge} type bridge")
        ip(f"link set {bridge} up")
    ip(f"address add {HERE}/24 dev near")


def ip(line: str, entry: Optional[list[str]] = None) -> None:
    subprocess.run([*(entry or []), "ip", *line.split()], check=True)


class Host:
    """A host with one address. Files and processes are those of the machine."""

    def __init__(self, number: int) -> None:
        self.address = f"{SUBNET}{number}"
        self._port = f"host{number}"
        # Ended with the runner, however that ends.
        keep = ["unshare", "--net", "setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo there && exec sleep infinity"]
        self._keeper = subprocess.Popen(keep, stdout=subprocess.PIPE, text=True)
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "there\n"
        #: The words before a command that runs there.
        self.entry = ["nsenter", f"--net={Path('/proc', str(self._keeper.pid), 'ns/net')}"]
        ip(f"link add {self._port} type veth peer name eth0 netns {self._keeper.pid}")
        for line in ("link set lo up", f"address add {self.address}/24 dev eth0", "link set eth0 up"):
            ip(line, self.entry)
        self.join()

    def cut_off(self) -> None:
        """Loses all packets to and from this host. No connection is closed."""
        ip(f"link set {self._port} nomaster")

    def split_off(self) -> None:
        """The same, but for the hosts that are split off too."""
        ip(f"link set {self._port} master far up")

    def join(self) -> None:
        ip(f"link set {self._port} master near up")

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()

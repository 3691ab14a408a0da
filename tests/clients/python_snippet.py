"""Runs the Python lines of docs/client-rules.md against servers whose roles change, and against addresses that never answer.

python_snippet.sh runs this file, and servers.py says what it needs. The lines get a shorter lease and an address that
always leads to the present primary, as a service address or a proxy does.
"""

import contextlib
import os
import re
import socket
import threading
import time
from pathlib import Path
from unittest import mock

from servers import SOON, Address, eventually, primary_and_replica

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client-rules.md"


def lines_of_the_page(address, lease=6):
    """The names that the page's block of Python with imports defines, for this host and port."""
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```python\n(import .*?)```", text, re.S).group(1)
    setting = "LEASE, BLOCK = 30, 60"
    assert setting in block
    os.environ["REDIS_URL"] = f"redis://{address}"
    names = {}
    exec(compile(block.replace(setting, f"LEASE, BLOCK = {lease}, 40"), str(PAGE), "exec"), names)
    return names


def usage_of_the_page(names):
    """Runs the block of Python that uses these names."""
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```python\n(with lock\(\S+\) as \(fence, lost\):.*?)```", text, re.S).group(1)
    exec(compile(block, str(PAGE), "exec"), names)


def acquire_and_hold_over_failovers(first, second, address):
    names = lines_of_the_page(f"127.0.0.1:{address.port}")
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
    """A wait that ends in vain withdraws its request: once more if it was not there: it could have been on its way."""
    names = lines_of_the_page(f"127.0.0.1:{address.port}")
    names["BLOCK"] = 0.5
    first.client.execute_command("DLOCK.ACQUIRE", "jobs:2", "EX", 600, "TOKEN", "before")
    before = first.calls("dlock.release")
    try:
        with names["lock"]("jobs:2"):
            raise AssertionError("the lock is held by another")
    except TimeoutError as error:
        assert "still held" in str(error), error
    assert first.calls("dlock.release") == before + 2
    eventually("an empty queue", lambda: first.waiters() == 0)


@contextlib.contextmanager
def address_that_swallows():
    """An address with a full backlog: connections to it neither come about nor are refused."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()


def tell_the_loss_while_connecting(server):
    """None of the addresses that the renewals try answers. The loss is told within the lease nevertheless."""
    lease, resolve, lead_to = 12, socket.getaddrinfo, [("127.0.0.1", server.port)]

    def addresses(host, *more, **options):
        if host != "locks.example":
            return resolve(host, *more, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for address in lead_to]

    with mock.patch("socket.getaddrinfo", addresses), address_that_swallows() as swallows:
        names = lines_of_the_page(f"locks.example:{server.port}", lease)
        with names["lock"]("jobs:3") as (_, lost):
            lead_to[:] = [swallows] * 9
            names["short"].connection_pool.disconnect()
            # From here on no renewal is answered. Nine connections take as long as a lease: 1.2 s each.
            since = time.monotonic()
            assert lost.wait(SOON), "the loss is not told"
            took = time.monotonic() - since
            lead_to[:] = [("127.0.0.1", server.port)]
        assert took <= lease, f"told after {took:.1f} s with a lease of {lease} s"


def main():
    with primary_and_replica() as (first, second):
        address = Address(first)
        acquire_and_hold_over_failovers(first, second, address)
        give_up(first, address)
        tell_the_loss_while_connecting(first)
    print("dsync: the Python lines of docs/client-rules.md follow the primary, and tell a loss in time.")


if __name__ == "__main__":
    main()

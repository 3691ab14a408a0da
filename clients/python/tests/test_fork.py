"""A process that forks, as web servers and multiprocessing do, or that is interrupted by signals."""

import subprocess
import sys

from servers import Server

PROGRAM = """
import os, sys, time, redis
from dsync import NotAcquired, lock

client = redis.Redis(port=int(sys.argv[1]))
with lock(client, "parent", lease=3) as hold:
    child = os.fork()
    if child == 0:
        # Neither the connections nor the threads of the parent are the child's.
        with lock(client, "child", lease=3) as own:
            try:
                lock(client, "parent", wait=0.3, own_connection=False).acquire()
            except NotAcquired:
                pass
            time.sleep(4)
            own.raise_if_lost()
        os._exit(0)
    time.sleep(4)
    hold.raise_if_lost()
    _, status = os.waitpid(child, 0)
assert status == 0, status
"""


def test_parent_and_child_hold_locks_of_their_own(server: Server) -> None:
    run(PROGRAM, server)


def run(program: str, server: Server) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


CHILD_THAT_LEAVES = """
import multiprocessing, os, sys, redis
from dsync import HoldLost, group, lock, once

client = redis.Redis(port=int(sys.argv[1]))

def in_child(ends):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, "the child failed"
    else:
        ends()

with lock(client, "k", lease=30) as hold:
    in_child(lambda: sys.exit(0))           # unwinds the block
    in_child(lambda: os._exit(0))
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    assert hold.renew()
    assert not hold.lost.is_set()

with once.begin(client, "w") as run:
    in_child(lambda: sys.exit(0))
    assert run.hold.renew()

batch = group(client, "g")
batch.expect(1)
child = 1
try:
    with batch.member() as hold:
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0, "the block of the child ended in silence"
            assert hold.renew()
except HoldLost as error:
    os._exit(0 if child == 0 and "parent" in str(error) else 1)
if not child:
    os._exit(1)
"""


def test_child_that_leaves_its_block_ends_nothing(server: Server) -> None:
    """sys.exit in a child went through the block and released the parent's lock, which was never told."""
    run(CHILD_THAT_LEAVES, server)


CHILD_THAT_STAYS = """
import os, sys, redis
from dsync import HoldLost, lock

client = redis.Redis(port=int(sys.argv[1]))
hold = lock(client, "k", lease=30).acquire()
child = os.fork()
if child == 0:
    told = hold.lost.is_set() and hold.lost.wait(30) and hold.left() == 0
    told = told and not hold.renew() and not hold.release()
    try:
        hold.raise_if_lost()
    except HoldLost as error:
        os._exit(0 if told and "parent" in str(error) else 1)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0, "the child was not told"
assert hold.release()
"""


def test_child_that_stays_is_told_that_it_holds_nothing(server: Server) -> None:
    """A daemon forks after it has taken its lock and goes on with the work: nothing renewed, and nothing told."""
    run(CHILD_THAT_STAYS, server)


CHILD_OF_A_TASK = """
import asyncio, os, sys, redis.asyncio
from dsync import HoldLost
from dsync.aio import lock

async def main():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    try:
        async with lock(client, "k", lease=30) as hold:
            child = os.fork()
            if child == 0:
                told = hold.lost.is_set() and await hold.lost.wait() and hold.left() == 0
                told = told and not await hold.renew() and not await hold.release()
                try:
                    hold.raise_if_lost()
                except HoldLost as error:
                    sys.exit(0 if told and "parent" in str(error) else 1)
                sys.exit(1)
            assert os.waitpid(child, 0)[1] == 0, "the child was not told"
            assert await hold.renew()
    except SystemExit as error:
        # The end of the loop would take from the parent what both wait for.
        os._exit(error.code)
    await client.aclose()

asyncio.run(main())
"""


def test_child_of_a_task_ends_nothing_and_is_told(server: Server) -> None:
    run(CHILD_OF_A_TASK, server)


FORK_WHILE_ASKING = """
import os, sys, threading, redis
from dsync import _performer
from dsync._sync._threads import Threads

client = redis.Redis(port=int(sys.argv[1]))
over = threading.Event()

def asking():
    while not over.is_set():
        Threads.of(client)

thread = threading.Thread(target=asking, daemon=True)
thread.start()
for _ in range(200):
    child = os.fork()
    if child == 0:
        _performer._LOCK.acquire(timeout=5) or os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the lock of another thread stays locked"
over.set()
thread.join()
"""


def test_fork_while_another_thread_asks(server: Server) -> None:
    run(FORK_WHILE_ASKING, server)


HANDLER_THAT_LOOKS = """
import signal, sys, time, redis
from dsync import lock

hold = lock(redis.Redis(port=int(sys.argv[1])), "k").acquire()
signal.signal(signal.SIGALRM, lambda *_: hold.raise_if_lost())
until = time.monotonic() + 3
while time.monotonic() < until:
    signal.setitimer(signal.ITIMER_REAL, 0.00005)
    for _ in range(20):
        hold.raise_if_lost()
signal.setitimer(signal.ITIMER_REAL, 0)
assert hold.release()
"""


def test_handler_of_a_signal_may_look_at_the_hold(server: Server) -> None:
    run(HANDLER_THAT_LOOKS, server)


PROGRAM_THAT_ENDS_INSIDE = """
import sys, redis
from dsync import lock

client = redis.Redis(port=int(sys.argv[1]))

def work():
    with lock(client, "block", lease=30):
        yield

class Owner:
    def __init__(self):
        self.hold = lock(client, "object", lease=30).acquire()
    def __del__(self):
        self.hold.release()
        lock(client, "late", lease=30).acquire()

begun = work()
next(begun)
owner = Owner()
"""


def test_holds_that_end_while_the_interpreter_does_are_released(server: Server) -> None:
    """The thread that watches over leases stood still by then with its lock, and the process waited for it for ever."""
    run(PROGRAM_THAT_ENDS_INSIDE, server)
    assert server.client().keys() == []

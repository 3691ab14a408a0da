"""Workers that use a real lock library in Python; src/peers/library.rs says what is written and read.

    locks.py contend PEER PORT 0 WORKERS INSIDE_US LENGTH_MS
    locks.py hold PEER PORT LEASE_MS

Each worker is a process of its own, as in a fleet. All of them are forked from one that has loaded the libraries.
"""

import os
import signal
import sys
import time
from importlib.metadata import version

import redis
import redis_lock

KEY = "shared"
# Neither library names a lease by default: without one, a lock whose holder died would stay.
LEASE_MS = 30_000


def connect(port):
    # A time-out shorter than the wait of BLPOP would end the wait; the library's documentation has none.
    client = redis.Redis(port=port, socket_timeout=None)
    client.ping()
    return client


def redis_py(client, lease_ms):
    """Returns what makes a lock; sleep is 0.1 s by default."""
    return lambda: client.lock(KEY, timeout=lease_ms / 1000)


def python_redis_lock(client, lease_ms):
    return lambda: redis_lock.Lock(client, KEY, expire=lease_ms // 1000)


PEERS = {
    "redis-py": (redis_py, "redis"),
    "python-redis-lock": (python_redis_lock, "python-redis-lock"),
}


def now_us():
    return time.monotonic_ns() // 1000


class Ended(Exception):
    """The contest has ended, and this worker still waits."""


class Worker:
    def __init__(self, number, make_lock):
        self.number = number
        self.make_lock = make_lock
        self.is_waiting = False

    def on_end(self, *_):
        if self.is_waiting:
            self.is_waiting = False
            raise Ended

    def work(self, begin_us, end_us, inside_s):
        """Returns a line for each visit."""
        lines = []
        signal.signal(signal.SIGALRM, self.on_end)
        # Again and again, for the first signal may come just before the worker begins to wait.
        signal.setitimer(signal.ITIMER_REAL, max(end_us - now_us(), 1) / 1e6, 0.05)
        time.sleep(max(begin_us - now_us(), 0) / 1e6)
        while (asked := now_us()) < end_us:
            lock = self.make_lock()
            try:
                self.is_waiting = True
                lock.acquire()
                self.is_waiting = False
            except Ended:
                lines.append(f"{self.number} {asked} - -\n")
                break
            got = now_us()
            time.sleep(inside_s)
            left = now_us()
            lock.release()
            lines.append(f"{self.number} {asked} {got} {left}\n")
        return "".join(lines)


def run_child(worker, port, peer, ready, begin, out, inside_s, length_us):
    """One forked worker: connects, says so, reads the begin, works, and writes its lines."""
    make, _ = PEERS[peer]
    worker.make_lock = make(connect(port), LEASE_MS)
    os.write(ready, b".")
    begin_us = int.from_bytes(os.read(begin, 8), "big")
    lines = worker.work(begin_us, begin_us + length_us, inside_s)
    with os.fdopen(out, "w") as file:
        file.write(lines)


def contend(peer, port, _permits, workers, inside_us, length_ms):
    ready_read, ready_write = os.pipe()
    begin_read, begin_write = os.pipe()
    outputs = []
    children = []
    for number in range(workers):
        out_read, out_write = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                arguments = (ready_write, begin_read, out_write, inside_us / 1e6, length_ms * 1000)
                run_child(Worker(number, None), port, peer, *arguments)
                status = 0
            finally:
                # Without the parent's clean-up, which is not the child's.
                sys.stderr.flush()
                os._exit(status)
        os.close(out_write)
        outputs.append(out_read)
        children.append(child)
    for _ in range(workers):
        os.read(ready_read, 1)
    say_ready(peer)
    begin_us = now_us() + 30_000
    for _ in range(workers):
        os.write(begin_write, begin_us.to_bytes(8, "big"))
    print("from", begin_us, begin_us + length_ms * 1000)
    for output in outputs:
        with os.fdopen(output) as file:
            sys.stdout.write(file.read())
    sys.stdout.flush()
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit(1 if failed else 0)


def hold(peer, port, lease_ms):
    make, _ = PEERS[peer]
    lock = make(connect(port), lease_ms)()
    say_ready(peer)
    lock.acquire()
    print("in", flush=True)
    sys.stdin.read()


def say_ready(peer):
    """Says that all are connected, and waits for the sign to begin."""
    _, package = PEERS[peer]
    print("ready", peer, version(package), flush=True)
    sys.stdin.readline()


def main():
    mode, peer, *numbers = sys.argv[1:]
    {"contend": contend, "hold": hold}[mode](peer, *map(int, numbers))


main()

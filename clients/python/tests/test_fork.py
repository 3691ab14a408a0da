"""A process that forks, as web servers and multiprocessing do."""

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
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

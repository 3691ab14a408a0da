"""What a waiting client and a kept place cost the server: counted against maxmemory (used_memory), and resident (RSS).

`sh tests/clients/python_snippet.sh waiter_memory.py` measures it; docs/scaling.md has the figures. CLIENTS clients
(2000) connect and wait for one lock at the same moment; then one client takes as many kept places.
"""

import os
import resource
import socket
import tempfile
import time

from servers import Server, eventually

CLIENTS = int(os.environ.get("CLIENTS", "2000"))
MOMENTS = (0, 1, 2, 3, 4, 5, 10, 20)  # seconds after the last request


def resident(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def measure(server):
    def costs():
        return server.info("memory")["used_memory"], resident(server)

    server.client.execute_command("DLOCK.ACQUIRE", "jobs:1", "EX", 600)
    before = costs()
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CLIENTS)]
    for number, connection in enumerate(connections):
        connection.sendall(f"DLOCK.ACQUIRE jobs:1 EX 30 TOKEN {number} BLOCK 600000\r\n".encode())
    eventually("waiting clients", lambda: server.waiters() == CLIENTS)
    since = time.monotonic()
    print(f"{server.info('server')['redis_version']}, {CLIENTS} waiting clients, kB for each:")
    for moment in MOMENTS:
        time.sleep(max(0, since + moment - time.monotonic()))
        used, rss = [(after - earlier) / CLIENTS / 1000 for after, earlier in zip(costs(), before)]
        print(f"after {moment:2} s: used_memory {used:5.1f}, RSS {rss:4.1f}")
    before = costs()
    server.client.execute_command("DLOCK.ACQUIRE", "jobs:2", "EX", 600)
    for number in range(CLIENTS):
        server.client.execute_command("DLOCK.ACQUIRE", "jobs:2", "EX", 30, "TOKEN", f"{number:036}", "QUEUE", 60000)
    used, rss = [(after - earlier) / CLIENTS / 1000 for after, earlier in zip(costs(), before)]
    print(f"a kept place: used_memory {used:.2f}, RSS {rss:.2f}")


def main():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(CLIENTS + 1000, most), most))
    with tempfile.TemporaryDirectory(prefix="dsync-memory-") as directory:
        server = Server(f"{directory}/server", f"maxclients {CLIENTS + 100}")
        try:
            measure(server)
        finally:
            server.process.kill()
            server.process.wait()


if __name__ == "__main__":
    main()

"""Where a row is played: servers, and a driver that is connected to them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional

from servers import SOON, Cluster, Proxy, Server, eventually, promote, replica_of, until_in_sync

from driver import Driver
from guarded import GuardedGroup

#: What a driver is told to connect to, where that is not the mode of its row.
CONNECTS: dict[str, str] = {"pair": "one", "three": "one", "three behind sentinel": "sentinel"}
CONNECTS.update(passwords="sentinel", tls="sentinel")


class Lab:
    """Servers of one mode, and the driver.

    The modes are `one`, `pair`: with a replica, `three`: with two replicas, `sentinel`: a pair behind a Sentinel,
    `three behind sentinel`, `passwords`: a pair behind Sentinels where everybody logs in, `tls`: the same over TLS, and
    `cluster`.
    """

    def __init__(self, command: list[str], mode: str) -> None:
        #: The driver's: its last words name the library.
        self.command = command
        self.mode = mode
        self._servers: list[Server] = []
        self._drivers: list[Driver] = []
        self._proxies: list[Proxy] = []
        self._aside = ThreadPoolExecutor()
        self._cluster: Optional[Cluster] = None
        self._group: Optional[GuardedGroup] = None
        #: A key of `server`.
        self.key = "k"

    def __enter__(self) -> Lab:
        try:
            ports = self._start()
            login = self._group.login() if self._group is not None else {}
            self.driver = self.another(CONNECTS.get(self.mode, self.mode), ports, **login)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for driver in self._drivers:
            driver.kill()
        for proxy in self._proxies:
            proxy.close()
        for server in self._servers:
            server.close()
        for servers in (self._cluster, self._group):
            if servers is not None:
                servers.close()
        self._aside.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> list[int]:
        """Starts the servers, and returns the ports to know.

        `server` has the key, `standby` takes over, and of three `sibling` is the other replica.
        """
        if self.mode == "cluster":
            self._cluster = Cluster()
            self.server, self.elsewhere = self.cluster.nodes[:2]
            self.standby = self.cluster.replica
            self.key = self.cluster.key_on(self.server)
            return [node.port for node in self.cluster.nodes]
        if self.mode in ("passwords", "tls"):
            self._group = GuardedGroup(over_tls=self.mode == "tls")
            self.server, self.standby = self.group.primary, self.group.replica
            self._sentinel = self.group.sentinels[0]
            return self.group.ports()
        self.server = Server()
        self._servers.append(self.server)
        if self.mode == "one":
            return [self.server.port]
        self.standby = replica_of(self.server)
        self._servers.append(self.standby)
        if self.mode.startswith("three"):
            # A Sentinel promotes the standby.
            self.sibling = replica_of(self.server, "--replica-priority", "200")
            self._servers.append(self.sibling)
        #: How many there are.
        self.replicas = len(self._servers) - 1
        if CONNECTS.get(self.mode) == "one":
            return [self.server.port]
        self.sentinel = Server(sentinel_of=self.server.port)
        self._servers.append(self.sentinel)
        self.until_told("num-slaves", self.replicas)
        return [self.sentinel.port]

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None
        return self._cluster

    @property
    def group(self) -> GuardedGroup:
        assert self._group is not None
        return self._group

    def another(self, mode: str, ports: list[int], **words: Any) -> Driver:
        """Starts one more driver, which is ended with the lab. The words are further ones of `connect`."""
        driver = Driver(self.command, mode, ports, **words)
        self._drivers.append(driver)
        return driver

    def behind_a_proxy(self, server: Optional[Server] = None) -> Proxy:
        """The driver is another one from now on, behind a proxy, which is closed with the lab."""
        proxy = Proxy((server or self.server).port)
        self._proxies.append(proxy)
        self.driver = self.another("one", [proxy.port])
        return proxy

    def fail_over(self) -> None:
        """The standby takes over, as an operator orders it."""
        if self.mode == "cluster":
            promote(self.standby, self.standby, "CLUSTER", "FAILOVER")
        else:
            promote(self.standby, self.sentinel, "SENTINEL", "FAILOVER", "locks")

    def switch(self) -> None:
        """The standby takes over as docs/sentinel.md says: writes are paused until the old primary follows."""
        self.ask("CLIENT", "PAUSE", int(SOON * 1_000), "WRITE")
        until_in_sync(self.server)
        self.fail_over()
        self.until_told("port", self.standby.port)
        self.ask("REPLICAOF", "127.0.0.1", self.standby.port)
        self.ask("CLIENT", "UNPAUSE")

    def until_told(self, field: str, value: int) -> None:
        """Waits until the Sentinel says this of the primary."""
        sentinel = self.sentinel.client()
        eventually(lambda: sentinel.sentinel_master("locks")[field] == value, f"a sentinel that says {field} {value}")

    def ask(self, *words: Any, server: Optional[Server] = None) -> Any:
        """Sends a command of the runner's own, to the server that has the key unless another is named."""
        # redis-py would give up a wait after five seconds, and ask again.
        settings = {"socket_timeout": None} if "BLOCK" in words else {}
        client = (server or self.server).client(protocol=2, decode_responses=True, **settings)
        if self.mode == "cluster":
            # Its replica answers otherwise MOVED.
            client.execute_command("READONLY")
        return client.execute_command(*words)

    def close_connections(self) -> None:
        """Closes all connections to the server that has the key, but for those of its replicas."""
        self.ask("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")

    def aside(self, work: Callable[[], Any]) -> Future[Any]:
        """Does something that takes long, while the row goes on."""
        return self._aside.submit(work)

    def info(self, key: str, server: Optional[Server] = None) -> dict[str, Any]:
        reply = self.ask("DLOCK.INFO", key, server=server) or []
        return dict(zip(reply[::2], reply[1::2]))

    def waiters(self, key: str) -> int:
        return int(self.info(key).get("waiters", 0))

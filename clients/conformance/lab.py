"""Where a row is played: servers, and a driver that is connected to them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional

from servers import Cluster, Proxy, Server, eventually, promote, replica_of

from driver import Driver


class Lab:
    """Servers of one mode (`one`, `pair`: with a replica, `sentinel`, `cluster`), and the driver."""

    def __init__(self, command: list[str], mode: str) -> None:
        self._command = command
        self.mode = mode
        self._servers: list[Server] = []
        self._drivers: list[Driver] = []
        self._proxies: list[Proxy] = []
        self._aside = ThreadPoolExecutor()
        self._cluster: Optional[Cluster] = None
        #: A key of `server`.
        self.key = "k"

    def __enter__(self) -> Lab:
        try:
            self.driver = self.another("one" if self.mode == "pair" else self.mode, self._start())
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
        if self._cluster is not None:
            self._cluster.close()
        self._aside.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> list[int]:
        """Starts the servers: `server`, which has the key, `standby`, which takes over. Returns the ports to know."""
        if self.mode == "cluster":
            self._cluster = Cluster()
            self.server, self.elsewhere = self.cluster.nodes[:2]
            self.standby = self.cluster.replica
            self.key = self.cluster.key_on(self.server)
            return [node.port for node in self.cluster.nodes]
        self.server = Server()
        self._servers.append(self.server)
        if self.mode == "one":
            return [self.server.port]
        self.standby = replica_of(self.server)
        self._servers.append(self.standby)
        if self.mode == "pair":
            return [self.server.port]
        self._sentinel = Server(sentinel_of=self.server.port)
        self._servers.append(self._sentinel)
        sentinel = self._sentinel.client()
        eventually(lambda: sentinel.sentinel_master("locks")["num-slaves"] == 1, "a sentinel that knows the replica")
        return [self._sentinel.port]

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None
        return self._cluster

    def another(self, mode: str, ports: list[int], **words: Any) -> Driver:
        """Starts one more driver, which is ended with the lab. The words are further ones of `connect`."""
        driver = Driver(self._command, mode, ports, **words)
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
            promote(self.standby, self._sentinel, "SENTINEL", "FAILOVER", "locks")

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

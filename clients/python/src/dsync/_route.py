"""Which server has a key: the only one, the one that the Sentinels name, or the node of a cluster that has its slot.

The clients find it, too, but in their own time: a Sentinel or a node that stands still keeps them for as long as their
time-outs allow, which is for ever by default. Here everything is asked with a bound, on connections of this package.
Written once, as :mod:`dsync._line` is, over what sends and reads for threads and for tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Awaitable, Callable, Iterable, Optional, TypeVar

from ._confirm import Part
from ._lease import now
from ._protocol import Words, text
from ._retry import is_of_the_program, note, passes, passes_for_a_hold, redirection
from ._source import Address, Source, is_cluster, name, source_of_pool
from ._times import LOOK_UP_WITHIN

Result = TypeVar("Result")
#: Sends commands to a server, in so many seconds. Returns the reply to the last one, or raises it.
Send = Callable[[Source, Part, float], Awaitable[Any]]


class Route:
    """Where the requests of a client with one server go."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def find(self, send: Send, key: Any, deadline: float) -> Source:
        """Returns which server has the key, to the best of our knowledge."""
        return self._source

    def peek(self, key: Any) -> str:
        """Returns the name of the node that has the key, "" if it is not known, or if there is one server only."""
        return ""

    def doubt(self, source: Source) -> None:
        """Notes that this server has failed, so that the next request looks afresh."""

    def blame(self, source: Source, error: Exception, key: Any) -> None:
        """Has the next request look afresh if it may find another server, and the error name server and key."""
        if passes_for_a_hold(error):
            self.doubt(source)
        name(error, source.name, repr(key))

    def redirected(self, error: Exception, source: Source) -> Optional[tuple[Source, bool]]:
        """Returns where the server says that the request should go, and whether ASKING has to come first."""
        return None


class _Guides:
    """The servers that know where others are. One that fails is asked last from then on."""

    def __init__(self, what: str, sources: Iterable[Source]) -> None:
        self._what = what
        self.know(sources)

    def know(self, sources: Iterable[Source]) -> None:
        """Replaces the servers that are known."""
        self._sources = list({source.name: source for source in sources}.values())

    def ask_last(self, source: Source) -> None:
        self._sources = sorted(self._sources, key=lambda known: known.name == source.name)

    async def ask(
        self, send: Send, words: Words, read: Callable[[Source, Any], Optional[Result]], deadline: float
    ) -> Result:
        """Returns what the first one says of whose reply something can be read.

        One that refuses, or whose certificate is refused, is passed over: its password may be half-way through its
        rotation. If nobody tells, the first refusal is the error. It passes, unless all of them refuse.
        """
        troubles, refusals = [], []
        for source in list(self._sources):
            known_as = f"the {self._what} at {source.name}"
            try:
                within = min(LOOK_UP_WITHIN, deadline - now())
                if within <= 0:
                    troubles.append("the time is over")
                    break
                found = read(source, await send(source, Part([words]), within))
                if found is not None:
                    return found
                troubles.append(f"{known_as}: it knows none")
            except Exception as error:
                if is_of_the_program(error):
                    raise
                troubles.append(f"{known_as}: {error}")
                self.ask_last(source)
                if not passes(error):
                    error.args = (troubles[-1],)
                    refusals.append(error)
        if refusals:
            note(refusals[0], may_pass=len(refusals) < len(troubles))
            raise refusals[0]
        raise self._sources[0].error("ConnectionError", f"no primary is found ({'; '.join(troubles)})")


class _BySentinel(Route):
    """The primary that the Sentinels name, until it fails."""

    def __init__(self, pool: Any) -> None:
        super().__init__(source_of_pool(pool))
        self._manager = pool.sentinel_manager
        self._service = pool.service_name
        guards = [source_of_pool(guard.connection_pool) for guard in self._manager.sentinels]
        self._sentinels = _Guides("Sentinel", guards)
        self._primary: Optional[Source] = None

    async def find(self, send: Send, key: Any, deadline: float) -> Source:
        found = self._primary
        if found is None:
            # The same command as the libraries', for the sake of ACLs.
            address = await self._sentinels.ask(send, ["SENTINEL", "MASTERS"], self._read, deadline)
            found = self._primary = replace(self._source, told=address)
        return found

    def doubt(self, source: Source) -> None:
        if self._primary is not None and self._primary.name == source.name:
            self._primary = None

    def _read(self, _: Source, reply: Any) -> Optional[Address]:
        for row in reply:
            fields = {text(name): text(value) for name, value in zip(row[::2], row[1::2])}
            if fields["name"] != text(self._service):
                continue
            flags = fields["flags"].split(",")
            is_down = "s_down" in flags or "o_down" in flags or "master" not in flags
            if not is_down and int(fields["num-other-sentinels"]) >= self._manager.min_other_sentinels:
                forced = getattr(self._manager, "_force_master_ip", None)
                return forced or fields["ip"], int(fields["port"])
        return None


class _InCluster(Route):
    """The node that has the slot of the key, by a look-up or by what a node has said since."""

    def __init__(self, client: Any) -> None:
        self._slot_of = client.keyslot
        self._remap = client.nodes_manager.remap_host_port
        manager = client.nodes_manager
        nodes = [*manager.startup_nodes.values(), *manager.nodes_cache.values()]
        super().__init__(source_of_pool(_pool_of(client, nodes[-1])))
        self._first_nodes = [self._source.at((node.host, int(node.port))) for node in nodes]
        self._nodes = _Guides("node", self._first_nodes)
        #: First and last slot, and who has them.
        self._ranges: list[tuple[int, int, Address]] = []
        self._moved: dict[int, Address] = {}

    async def find(self, send: Send, key: Any, deadline: float) -> Source:
        ranges = self._ranges
        if not ranges:
            ranges = self._ranges = await self._nodes.ask(send, ["CLUSTER", "SLOTS"], self._read, deadline)
        found = self._known(key, ranges)
        if found is None:
            self._ranges = []
            raise self._source.error("ConnectionError", f"no node has slot {self._slot_of(key)}")
        return found

    def peek(self, key: Any) -> str:
        found = self._known(key, self._ranges)
        return "" if found is None else found.name

    def _known(self, key: Any, ranges: list[tuple[int, int, Address]]) -> Optional[Source]:
        slot = self._slot_of(key)
        address = self._moved.get(slot)
        for first, last, owner in ranges:
            if address is None and first <= slot <= last:
                address = owner
        return None if address is None else self._source.at(address)

    def doubt(self, source: Source) -> None:
        self._ranges, self._moved = [], {}
        self._nodes.ask_last(source)

    def redirected(self, error: Exception, source: Source) -> Optional[tuple[Source, bool]]:
        found = redirection(error)
        if found is None:
            return None
        slot, host, port, is_moved = found
        address = self._known_as(host, port, source)
        if is_moved:
            self._moved[slot] = address
        return self._source.at(address), not is_moved

    def _read(self, source: Source, reply: Any) -> Optional[list[tuple[int, int, Address]]]:
        found, everybody = [], []
        for first, last, *nodes in reply:
            addresses = [self._known_as(text(node[0] or ""), int(node[1]), source) for node in nodes]
            found.append((int(first), int(last), addresses[0]))
            everybody += addresses
        if not found:
            return None
        self._moved = {}
        self._nodes.know([*map(self._source.at, everybody), *self._first_nodes])
        return found

    def _known_as(self, host: str, port: int, source: Source) -> Address:
        """Returns the address as the client would use it. A node without a name is where it was asked."""
        remapped: Address = self._remap(source.address[0] if host in ("", "?") else host, port)
        return remapped


def _pool_of(client: Any, node: Any) -> Any:
    """Returns the pool of a cluster's node. An asyncio cluster's nodes are pools themselves."""
    if hasattr(node, "connection_kwargs"):
        return node
    # Each library calls it by its own name.
    connect = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
    return connect(node).connection_pool


def route_of(client: Any) -> Route:
    if is_cluster(client):
        return _InCluster(client)
    pool = client.connection_pool
    return _BySentinel(pool) if hasattr(pool, "sentinel_manager") else Route(source_of_pool(pool))

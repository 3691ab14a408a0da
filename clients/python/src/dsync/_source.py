"""Connections of one's own, made as the client makes those of its pool.

A wait must not occupy the client's pool, and the client's time-outs fit neither a wait, which is long, nor a renewal,
which must not be. So a connection is made outside the pool, of the same class and with the same settings: address, TLS,
user, database, Sentinel. Only what concerns time-outs, repetition and decoding differs.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Dict, Hashable, NamedTuple, Optional, Type

from ._steps import ANSWER_WITHIN

# Repetition is this package's own affair, and so is the protocol: RESP2 has no push messages in between.
_LEFT_OUT = (
    "retry",
    "retry_on_error",
    "retry_on_timeout",
    "health_check_interval",
    "parser_class",
    "response_callbacks",
    "event_dispatcher",
    "himport_registry",
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "oss_cluster_maint_notifications_handler",
)


class Source(NamedTuple):
    """How to connect to the server that has a key."""

    connection_class: Type[Any]
    settings: Dict[str, Any]
    #: Host and port of a cluster's node; ``None`` where the client has one server.
    node: Optional[Hashable]

    def connection(self, **settings: Any) -> Any:
        return self.connection_class(**{**self.settings, **settings})

    def timeout_error(self, message: str) -> Exception:
        return timeout_error(self.connection_class, message)


def timeout_error(library_class: Type[Any], message: str) -> Exception:
    """Returns the error that the library of this class raises for a time-out, so that callers catch one kind."""
    for kind in library_class.__mro__:
        exceptions = sys.modules.get(f"{kind.__module__.split('.')[0]}.exceptions")
        error = getattr(exceptions, "TimeoutError", None)
        if error is not None:
            return error(message)  # type: ignore[no-any-return]
    return TimeoutError(message)


def check_client(client: Any, *, is_async: bool) -> None:
    """Raises ``TypeError`` unless this is a client that this package can use."""
    if not (hasattr(client, "connection_pool") or is_cluster(client)):
        raise TypeError(f"a client of redis-py or valkey-py is needed, not {type(client).__name__}")
    if inspect.iscoroutinefunction(client.execute_command) is not is_async:
        name = f"{type(client).__module__}.{type(client).__name__}"
        raise TypeError(f"{name} belongs to {'dsync' if is_async else 'dsync.aio'}, not here")


def is_cluster(client: Any) -> bool:
    return hasattr(client, "get_node_from_key")


def source_of(client: Any, key: str) -> Source:
    """Returns how ``client``, of redis-py or valkey-py, connects to the server that has ``key``."""
    node: Optional[Hashable] = None
    if is_cluster(client):
        place = client.get_node_from_key(key)
        node = (place.host, place.port)
        # The nodes of an asyncio cluster are pools themselves.
        pool = place if hasattr(place, "connection_kwargs") else client.get_redis_connection(place).connection_pool
    else:
        pool = client.connection_pool
    settings = {name: value for name, value in pool.connection_kwargs.items() if name not in _LEFT_OUT}
    connect_within = settings.get("socket_connect_timeout") or ANSWER_WITHIN
    settings.update(
        socket_timeout=ANSWER_WITHIN,
        socket_connect_timeout=min(connect_within, ANSWER_WITHIN),
        decode_responses=False,
        protocol=2,
    )
    return Source(pool.connection_class, settings, node)

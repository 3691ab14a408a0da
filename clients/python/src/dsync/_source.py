"""Connections of one's own, made as the client makes those of its pool.

Neither a wait nor a renewal may depend on the client's pool: it can be too small, its time-outs fit neither, and a
cluster's client closes the connections of other tasks under their commands when it looks up its nodes afresh. So
connections are made outside the pool, of the same class and with the same settings: address, TLS, user, database. Only
what concerns time-outs, repetition and decoding differs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from dataclasses import dataclass, replace
from typing import Any, Awaitable, Optional, Protocol

from ._retry import concerns_the_connection, is_reply
from ._times import ANSWER_WITHIN

#: Host and port.
Address = tuple[str, int]

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


class Client(Protocol):
    """A client of redis-py or valkey-py: of one server, of Sentinels or of a cluster."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class AsyncClient(Protocol):
    """The same of ``redis.asyncio`` or ``valkey.asyncio``."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]: ...


@dataclass(frozen=True)
class Source:
    """How to connect to one server."""

    connection_class: type[Any]
    settings: dict[str, Any]
    #: The address that a Sentinel has told. Other connections have theirs in their settings.
    told: Optional[Address] = None

    @functools.cached_property
    def name(self) -> str:
        """The address, for people and as a key: the same for all connections to one server."""
        host, port = self.address
        return str(self.settings.get("path") or f"{host}:{port}")

    @property
    def address(self) -> Address:
        return self.told or (self.settings.get("host", "localhost"), int(self.settings.get("port", 6379)))

    def at(self, address: Address) -> Source:
        """Returns how to connect to another server of the same kind."""
        return replace(self, settings={**self.settings, "host": address[0], "port": address[1]})

    def connection(self, **settings: Any) -> Any:
        return self.connection_class(**{**self.settings, **settings})

    def error(self, kind: str, message: str) -> Exception:
        return library_error(self.connection_class, kind, message)

    def no_answer(self, within: float) -> Exception:
        return self.error("TimeoutError", f"the server did not answer within {within:.1f} s")


def library_error(of: type[Any], kind: str, message: str) -> Exception:
    """Returns an error of this name of the library that has the class, so that callers catch one kind."""
    for base in of.__mro__:
        exceptions = sys.modules.get(f"{base.__module__.split('.')[0]}.exceptions")
        error = getattr(exceptions, kind, None)
        if error is not None:
            return error(message)  # type: ignore[no-any-return]
    return ConnectionError(message)


def name(error: Exception, *names: str) -> None:
    """Has the error of a connection or a server say which server and which key it is about."""
    message = str(error) or type(error).__name__
    unsaid = [each for each in names if each not in message]
    if concerns_the_connection(error):
        for each in unsaid:
            message = f"{each}: {message}"
        error.args = (message,)
    elif is_reply(error) and unsaid:
        # Behind it: a reply is known by its first word.
        error.args = (f"{message} ({' at '.join(reversed(unsaid))})",)


def source_of_pool(pool: Any) -> Source:
    """Returns how the client of this pool connects. The nodes of an asyncio cluster are pools themselves."""
    settings = {name: value for name, value in pool.connection_kwargs.items() if name not in _LEFT_OUT}
    within = min(settings.get("socket_connect_timeout") or ANSWER_WITHIN, ANSWER_WITHIN)
    settings.update(socket_connect_timeout=within, decode_responses=False, protocol=2)
    return Source(pool.connection_class, settings)


def check_client(client: Any, *, is_async: bool) -> None:
    """Raises ``TypeError`` unless this is a client that this package can use."""
    if not (hasattr(client, "connection_pool") or is_cluster(client)):
        raise TypeError(f"a client of redis-py or valkey-py is needed, not {type(client).__name__}")
    if inspect.iscoroutinefunction(client.execute_command) is not is_async:
        name = f"{type(client).__module__}.{type(client).__name__}"
        raise TypeError(f"{name} belongs to {'dsync' if is_async else 'dsync.aio'}, not here")


def is_cluster(client: Any) -> bool:
    return hasattr(client, "get_node_from_key")

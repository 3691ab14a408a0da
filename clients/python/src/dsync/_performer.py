"""Performs the scripts of a client.

Written once, as :mod:`dsync._line` is: ``Threads`` and ``Tasks`` say how one waits, and over which connection one asks.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import Any, Awaitable, Callable, ClassVar, Coroutine, MutableMapping, Optional, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ._confirm import Confirm, Part
from ._lease import now
from ._line import Line
from ._mutex import taking
from ._protocol import Words
from ._retry import note, passes_for_a_hold
from ._route import route_of
from ._source import Source, is_cluster, name
from ._times import ANSWER_WITHIN
from ._turns import Listener, Watching

#: Seconds that are left at least for a command that has found its server.
SHORTEST = 0.05
#: How many redirections one command follows.
REDIRECTIONS = 5

Self = TypeVar("Self", bound="Performer")
Result = TypeVar("Result")
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    # Otherwise it could stay locked in the child.
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class Event(Protocol):
    """The library's own, and a wait that is bounded."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    async def within(self, seconds: float) -> bool: ...


class Performer(ABC):
    """The connections of one client, what is heard over them, and where they lead. It goes with the client."""

    is_async: ClassVar[bool]
    event: ClassVar[type[Any]]
    line: ClassVar[type[Line]]
    #: Returns the process, and the event loop, for which connections can be used.
    where: ClassVar[Any]
    #: Returns the thread or task that runs now.
    who: ClassVar[Any]
    sleep: ClassVar[Any]
    #: Has a coroutine function run in the background. Returns what cancels a task; a thread notices that it is over.
    start: ClassVar[Any]
    #: Returns a coroutine function as these threads or tasks call it.
    plain: ClassVar[Any]

    def __init__(self, client: Any) -> None:
        self.route = route_of(client)
        #: What renews holds; see :func:`dsync._renewals.renewals_of`.
        self.renewals: dict[Any, Any] = {}
        self.lock = threading.RLock()
        self._where = self.where()
        self._is_sharded = is_cluster(client)
        self._listeners: dict[str, Listener] = {}
        self._held: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @classmethod
    def of(cls: type[Self], client: Any) -> Self:
        """Returns that of a client. After a fork, and in another event loop, it is a new one."""
        # Kept at the client itself: the settings of a cluster's connections refer back to it.
        with taking(_LOCK):
            found: Optional[Self] = getattr(client, "_dsync", None)
            if found is None or found._where != cls.where():
                found = client._dsync = cls(client)
            return found

    @abstractmethod
    async def send(self, source: Source, parts: list[Part], within: float) -> None:
        """Sends the commands of the parts in one write, in so many seconds. The parts keep the replies."""

    async def find(self, key: Any, within: float) -> Source:
        """Returns which server has the key, in so many seconds."""
        try:
            return await self.route.find(self._reply, key, now() + within)
        except Exception as error:
            note(error, is_unsent=True)
            name(error, repr(key))
            raise

    async def ask(self, key: Any, part: Part, within: float) -> Any:
        """Sends commands to the server that has the key, and follows redirections. All in so many seconds.

        Returns the reply to the last one, or raises it.
        """
        deadline = now() + within
        source = await self.find(key, within)
        is_asking = False
        for redirections in range(REDIRECTIONS + 1):
            part.begin(is_asking=is_asking)
            try:
                return await self._reply(source, part, max(SHORTEST, deadline - now()))
            except Exception as error:
                elsewhere = self.route.redirected(error, source) if redirections < REDIRECTIONS else None
                if elsewhere is None:
                    self.route.blame(source, error, key)
                    raise
                source, is_asking = elsewhere
        raise AssertionError("the last attempt has returned or raised")

    async def ask_all(self, requests: list[tuple[Any, Part]], within: float) -> list[Any]:
        """Sends many requests, in one write to each server. Returns the replies, errors of all kinds among them.

        One that is redirected is asked again alone. All in so many seconds.
        """
        deadline = now() + within
        replies: dict[Part, Any] = {}
        places: dict[str, tuple[Source, list[tuple[Any, Part]]]] = {}
        for key, part in requests:
            try:
                source = await self.find(key, deadline - now())
                places.setdefault(source.name, (source, []))[1].append((key, part))
            except Exception as error:
                replies[part] = error
        for source, asked in places.values():
            trouble = None
            try:
                await self.send(source, [part for _, part in asked], max(SHORTEST, deadline - now()))
            except Exception as error:
                trouble = error
                name(error, source.name)
            for key, part in asked:
                reply = replies[part] = trouble or part.replies[-1]
                if not isinstance(reply, Exception):
                    continue
                if passes_for_a_hold(reply):
                    self.route.doubt(source)
                if self.route.redirected(reply, source) is not None and now() < deadline:
                    try:
                        replies[part] = await self.ask(key, part, deadline - now())
                    except Exception as error:
                        replies[part] = error
        return [replies[part] for _, part in requests]

    async def _reply(self, source: Source, part: Part, within: float) -> Any:
        """Returns the reply to the last of the commands, or raises it."""
        await self.send(source, [part], within)
        reply = part.replies[-1]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def last(self, asking: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """Has a command go out although its task is being cancelled."""
        return asking

    def held_here(self) -> MutableMapping[str, Any]:
        """Returns the reentrant holds of the thread or task that runs now. They are kept elsewhere."""
        with taking(self.lock):
            held: MutableMapping[str, Any] = self._held.setdefault(self.who(), WeakValueDictionary())
            return held

    async def watch(self, source: Source, channel: bytes) -> Watching:
        """Subscribes, and returns when the server has confirmed it."""
        with taking(self.lock):
            listener = self._listeners.get(source.name)
            if listener is None or listener.is_over:
                listener = self._listeners[source.name] = Listener(
                    self.line(source, ANSWER_WITHIN), self.event, self.start, is_sharded=self._is_sharded
                )
            watching = listener.add(channel)
        await listener.confirm(watching)
        return watching

    async def run(self, script: Callable[..., Awaitable[Result]], key: str, *arguments: Any) -> Result:
        """Runs a script of ``_steps``, which is given a :class:`Talk` and these arguments."""
        talk = Talk(self, key)
        try:
            return await script(talk, *arguments)
        finally:
            await talk.close()


class Talk:
    """What one script needs of the client. All of it raises what goes wrong."""

    def __init__(self, performer: Performer, key: str) -> None:
        self._performer = performer
        #: Of what the script is about, also for the messages of errors.
        self.key = key
        self._blocking: Optional[Line] = None
        self._watching: Optional[Watching] = None

    async def ask(self, words: Words, within: float = ANSWER_WITHIN, confirm: Optional[Confirm] = None) -> Any:
        """Sends a command that is answered at once, and returns the reply. The replicas have their time besides."""
        return await self._performer.ask(self.key, Part([words], confirm), within)

    async def ask_last(self, part: Part, within: float) -> Any:
        """Does the same with commands that must go out although the caller is being cancelled.

        Returns the reply to the last one.
        """
        return await self._performer.last(self._performer.ask(self.key, part, within))

    async def ask_all(self, requests: list[tuple[str, Part]], within: float) -> list[Any]:
        """Sends a command for each of these keys, and returns the replies, errors of all kinds among them."""
        return await self._performer.ask_all(requests, within)

    async def block(self, words: Words, seconds: float, confirm: Optional[Confirm] = None) -> Any:
        """Sends a command that may block for so many seconds, on a connection of its own, and returns the reply."""
        line, self._blocking = self._blocking, None
        if line is None:
            line = self._performer.line(await self._source(), ANSWER_WITHIN)
        try:
            part = Part([words], confirm)
            await line.ask([part], seconds + ANSWER_WITHIN)
            [reply] = part.replies
            if isinstance(reply, Exception):
                raise reply
        except BaseException as error:
            await line.close()
            if isinstance(error, Exception):
                self._performer.route.blame(line.source, error, self.key)
            raise
        self._blocking = line
        return reply

    async def watch(self, channel: bytes) -> None:
        """Subscribes to the channel on which a turn is announced."""
        await self._unwatch()
        source = await self._source()
        try:
            self._watching = await self._performer.watch(source, channel)
        except Exception as error:
            self._performer.route.blame(source, error, self.key)
            raise

    async def turn(self, seconds: float) -> None:
        """Waits for a message on the channel that is watched, for so many seconds at most."""
        assert self._watching is not None
        await self._watching.wait(seconds)

    async def pause(self, seconds: float, changed: Optional[Event] = None) -> None:
        """Waits. It is cut short when something has changed."""
        if changed is None:
            await self._performer.sleep(seconds)
        else:
            await changed.within(seconds)
            changed.clear()

    async def close(self) -> None:
        if self._blocking is not None:
            await self._blocking.close()
        await self._unwatch()

    async def _unwatch(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            await watching.end()

    async def _source(self) -> Source:
        return await self._performer.find(self.key, ANSWER_WITHIN)

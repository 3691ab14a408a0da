"""Renews the holds of a client: all that are due at a time together, in one write to each server.

A script, as those of ``_steps``. Each hold keeps its :class:`Renewed`, and nothing else does: a hold that is forgotten
is not renewed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable, Optional
from weakref import WeakSet

from ._confirm import Confirm, Part
from ._lease import Asked, Lease, now
from ._mutex import taking
from ._protocol import Request
from ._retry import log, passes, tells_the_end
from ._steps import NOT_RENEWED
from ._times import FIRST_PAUSE, RENEWAL_WITHIN

if TYPE_CHECKING:
    from ._performer import Event, Performer, Talk


class Renewed:
    """What renews one hold."""

    def __init__(
        self, request: Request, lease: Lease, confirm: Optional[Confirm], on_lost: Callable[[str], None]
    ) -> None:
        self.key = request.key
        self.lease = lease
        self.confirm = confirm
        self._request = request
        self._on_lost = on_lost
        #: When to ask again, after a renewal that was not answered.
        self._again_at: Optional[float] = None
        self._pause = FIRST_PAUSE
        #: The renewal that was sent last.
        self._asked: Optional[Asked] = None

    @property
    def due_at(self) -> float:
        return self.lease.renewal_due_at() if self._again_at is None else self._again_at

    def is_due(self, moment: float) -> bool:
        """Whether to renew it now, as others are: also if it is due in a sixth of its lease."""
        return moment >= self.due_at - (self.lease.seconds / 6 if self._again_at is None else 0)

    def part(self, shortest: float) -> Part:
        """Returns the renewal. The replicas get no longer than the hold with the shortest lease can wait for it."""
        confirm = None if self.confirm is None else self.confirm.at_most(shortest / 6)
        if self._asked is not None:
            # Where a round has failed nobody has heard of it.
            self._asked.over_at = min(self._asked.over_at, now())
        self._asked = self.lease.asks()
        return Part([self._request.renewal(self._asked.seconds)], confirm)

    def hears(self, reply: Any) -> None:
        assert self._asked is not None
        if not isinstance(reply, Exception):
            self._again_at, self._pause = None, FIRST_PAUSE
            if int(reply):
                self.lease.renewed(self._asked)
            else:
                self._on_lost(NOT_RENEWED)
        elif tells_the_end(reply):
            self._on_lost(str(reply))
        else:
            if self._again_at is None and not passes(reply):
                log.warning("%r is not renewed: %s", self.key, reply)
            self.lease.not_renewed(reply, self._asked)
            pause = min(self._pause, self.lease.seconds / 10)
            self._again_at, self._pause = now() + pause, 2 * pause


class Renewals:
    """The holds that one thread or task renews, which exists while there is one that lives long enough. Thread-safe."""

    def __init__(self, event: Event) -> None:
        self._lock = threading.RLock()
        self._holds: WeakSet[Renewed] = WeakSet()
        self._renewer: Optional[Callable[[], Any]] = None
        #: Set when there is something to do for it.
        self._changed = event

    def add(self, hold: Renewed) -> None:
        with taking(self._lock):
            self._holds.add(hold)

    def remove(self, hold: Renewed) -> None:
        with taking(self._lock):
            self._holds.discard(hold)
            is_empty = not self._holds
        if is_empty:
            # The thread or task has nothing more to wait for.
            self._changed.set()

    def begin(self, performer: Performer) -> None:
        """Called when a renewal is due, of which the thread or task may not know."""
        with taking(self._lock):
            if self._renewer is None:
                self._renewer = performer.start("dsync-renews", lambda: self._renew(performer))
        self._changed.set()

    async def _renew(self, performer: Performer) -> None:
        while True:
            try:
                return await performer.run(renew, "", self._live, self._changed)
            except Exception:
                log.exception("holds are not renewed for now")
                await performer.sleep(1)
            except BaseException:
                self._renewer = None
                raise

    def _live(self) -> list[Renewed]:
        with taking(self._lock):
            live = [hold for hold in self._holds if hold.lease.left() > 0 and not hold.lease.is_forgotten]
            if not live:
                self._renewer = None
            return live


def renewals_of(performer: Performer, hold: Renewed) -> Renewals:
    """Returns what renews this hold, one for a client.

    In a cluster it is one for each node, as a node that stands still keeps its thread waiting. Holds that replicas
    confirm have another, for the same reason.
    """
    kind = (performer.route.peek(hold.key), hold.confirm is not None)
    with taking(performer.lock):
        found: Optional[Renewals] = performer.renewals.get(kind)
        if found is None:
            found = performer.renewals[kind] = Renewals(performer.event())
    found.add(hold)
    return found


async def renew(talk: Talk, holds: Callable[[], list[Renewed]], changed: Optional[Event] = None) -> None:
    """Renews each of the holds at each third of its lease, until there is none."""
    while live := holds():
        moment = now()
        next_at = min(hold.due_at for hold in live)
        if moment < next_at:
            await talk.pause(min(next_at - moment, *(hold.lease.slice for hold in live)), changed)
            continue
        due = [hold for hold in live if hold.is_due(moment)]
        shortest = min(hold.lease.seconds for hold in live)
        requests = [(hold.key, hold.part(shortest)) for hold in due]
        replies = await talk.ask_all(requests, min(RENEWAL_WITHIN, max(shortest / 3, 0.1)))
        for hold, reply in zip(due, replies):
            hold.hears(reply)

"""What this package does with a server, as scripts that know neither threads nor asyncio.

A script is a coroutine that is given a :class:`~dsync._performer.Talk`, by which it asks and waits. Both halves of the
package run the same ones, so both behave alike: which errors are retried, how a place in the queue is kept, and when a
request is withdrawn stands here only.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

from . import _protocol
from ._confirm import Confirm, Part
from ._lease import Lease, now
from ._protocol import ONCE, Done, GivenUp, Granted, Request, Waiting, Word, Words, fields, holders, milliseconds, text
from ._retry import Patience, is_in_doubt, passes_for_a_hold, tells_the_end
from ._times import (
    ANSWER_WITHIN,
    ASK_AGAIN_AFTER,
    BLOCK_AT_MOST,
    PLACE_KEPT_FOR,
    TAKEOVER_GRACE,
    TRY_WITHIN,
    WITHDRAW_TRY_WITHIN,
    WITHDRAW_WITHIN,
)
from .errors import NotAcquired, NotConfirmed

if TYPE_CHECKING:
    from ._performer import Talk
    from ._settings import Settings


@dataclass(frozen=True)
class Grant:
    """A hold that was granted."""

    request: Request
    told: Granted
    #: When the last successful request for it was sent.
    sent: float


Outcome = Union[Grant, Done, GivenUp, None]


async def acquire(talk: Talk, request: Request, settings: Settings) -> Outcome:
    """Asks until the request is granted, or the work it asks for is done or given up. ``None``: the wait is over.

    However it ends without a grant, a request that the server may know of is withdrawn: its grant, which nobody would
    hear of, would hold up the others for a lease.
    """
    is_try = settings.wait == 0
    asking = _Asking(talk, request, settings)
    try:
        return await asking.outcome()
    except GeneratorExit:
        # Nothing can be awaited any more.
        asking.may_be_known = False
        raise
    finally:
        if asking.may_be_known:
            await withdraw(talk, asking.request, WITHDRAW_TRY_WITHIN if is_try else WITHDRAW_WITHIN)


class _Asking:
    """A request on its way."""

    def __init__(self, talk: Talk, request: Request, settings: Settings) -> None:
        self.request = request
        #: Whether the server may have a grant or a place for the request that the caller does not know of.
        self.may_be_known = False
        self._talk = talk
        self._settings = settings

    async def outcome(self) -> Outcome:
        """Takes a kept place in the queue (QUEUE), which survives a broken connection and a failover.

        It waits there with BLOCK on a connection of its own, or without a connection until its turn is announced. A try
        asks once; again only if no answer comes, for half of its time. It leaves time for the withdrawal.
        """
        talk, settings, confirm = self._talk, self._settings, self._settings.confirm
        deadline = None if settings.wait is None else now() + settings.wait
        heard_by: Optional[float] = None
        if settings.wait == 0:
            heard_by = now() + TRY_WITHIN - WITHDRAW_TRY_WITHIN
            deadline = heard_by - WITHDRAW_TRY_WITHIN
        patience = Patience(self.request.key, settings.retry_for if heard_by is None else TRY_WITHIN, deadline)
        has_place = False
        watched: Optional[bytes] = None
        while True:
            sent = now()
            self.may_be_known = True
            try:
                if heard_by is not None:
                    reply = await self._ask(self.request.words(), heard_by)
                elif has_place and settings.own_connection:
                    seconds = _at_most(BLOCK_AT_MOST, deadline)
                    reply = await talk.block(self.request.words("BLOCK", milliseconds(seconds)), seconds, confirm)
                else:
                    reply = await talk.ask(self.request.words("QUEUE", milliseconds(PLACE_KEPT_FOR)), confirm=confirm)
                answer = _protocol.answer(reply)
                patience.answered()
                if isinstance(answer, (Done, GivenUp)) or (answer is None and heard_by is not None):
                    self.may_be_known = False
                    return answer
                if isinstance(answer, Granted):
                    grant = await self._accept(answer, sent, heard_by)
                    if grant is not None:
                        return grant
                    has_place = False
                elif deadline is not None and now() >= deadline:
                    return None
                elif isinstance(answer, Waiting):
                    has_place = True
                    if not settings.own_connection and answer.channel != watched:
                        # The turn may have come before the subscription, so ask once more right after it.
                        await talk.watch(answer.channel)
                        watched = answer.channel
                    elif not settings.own_connection:
                        # Messages can be lost, and the place is kept only if the request is repeated.
                        await talk.turn(_at_most(ASK_AGAIN_AFTER, deadline))
                # Otherwise BLOCK has run out. The place is kept, and the next BLOCK goes on there.
            except Exception as error:
                pause = patience.pause_after(error)
                # Ask the server, which may be another one by now, whether the place still stands.
                has_place, watched = False, None
                await talk.pause(pause)

    async def _ask(self, words: Words, heard_by: Optional[float]) -> Any:
        """Asks, and has the answer by then in a try; confirmed where that is wanted."""
        confirm = self._settings.confirm
        if heard_by is None:
            return await self._talk.ask(words, confirm=confirm)
        within = max(0.0, heard_by - now())
        if confirm is None:
            return await self._talk.ask(words, within)
        # Half of the time is for the server, the rest for its replicas.
        return await self._talk.ask(words, within / 2, confirm.at_most(within / 4))

    async def _accept(self, granted: Granted, sent: float, heard_by: Optional[float]) -> Optional[Grant]:
        """Returns the grant, or ``None`` if the hold has ended already and a new request has to be made."""
        request = self.request
        # A grant that came by waiting can be as old as the request: renew it, unless that was sent a moment ago.
        if now() - sent > request.lease / 10:
            sent = now()
            if not int(await self._ask(request.renewal(request.lease), heard_by)):
                self.request = request.afresh()
                self.may_be_known = False
                return None
        self.may_be_known = False
        return Grant(request, granted, sent)


def _at_most(seconds: float, deadline: Optional[float]) -> float:
    return seconds if deadline is None else max(0.0, min(seconds, deadline - now()))


async def withdraw(talk: Talk, request: Request, within: float = WITHDRAW_WITHIN) -> None:
    """Takes back a request that nobody waits for any more."""
    for _ in range(2):
        try:
            if int(await talk.ask_last(Part([request.verb("RELEASE")]), within)):
                return
        except Exception:  # The place runs out by itself, or the lease does.
            return
        # Nothing was withdrawn: the request was over, or has not arrived yet.


#: Why a hold is lost that RENEW does not find.
NOT_RENEWED = "its lease ran out, or it was revoked or removed"


async def renew_now(talk: Talk, request: Request, lease: float, confirm: Optional[Confirm] = None) -> Optional[str]:
    """Renews once, and raises the error if there is no answer. Returns why the hold has ended, if it has."""
    try:
        is_renewed = int(await talk.ask(request.renewal(lease), confirm=confirm))
    except Exception as error:
        if tells_the_end(error):
            return str(error)
        raise
    return None if is_renewed else NOT_RENEWED


def lives_for(lease: float) -> float:
    """Returns for how many seconds the server can know a hold, if nobody renews it: a promoted one begins anew."""
    return lease + TAKEOVER_GRACE


async def finish(
    talk: Talk,
    request: Request,
    verb: str,
    *more: Word,
    retry_for: float,
    confirm: Optional[Confirm] = None,
    lease: Optional[Lease] = None,
) -> bool:
    """Sends RELEASE, DONE or FAIL until it is answered. Returns whether the hold counts as ended by that.

    Raises the last error after ``retry_for`` seconds without an answer. With ``confirm`` the answer to DONE has to be
    confirmed in that time, where it was given. A repeated DONE is no write, and WAIT behind it knows nothing of the
    replicas. So where one may have been carried out, the next comes right behind a RENEW of the ``lease``, in the same
    write: if that finds the hold, this DONE is the first.
    """
    patience = Patience(request.key, retry_for, passes=passes_for_a_hold)
    behind = None if confirm is None else replace(confirm, until=now() + retry_for)
    in_doubt = False
    was_lost = lease is not None and lease.why_lost() is not None
    while True:
        renewal: list[Words] = []
        if in_doubt and confirm is not None and lease is not None and lease.why_lost() is None:
            renewal = [request.renewal(lease.asks_for(lease.seconds))]
        part = Part([*renewal, request.verb(verb, *more)], behind if renewal or not in_doubt else None)
        try:
            reply = int(await talk.ask_last(part, min(ANSWER_WITHIN, max(retry_for, WITHDRAW_WITHIN))))
            break
        except Exception as error:
            if tells_the_end(error):
                reply = 0
                break
            in_doubt = in_doubt or is_in_doubt(error)
            await talk.pause(patience.pause_after(error))
    # The run's DONE is answered as the first was: by 0 only if another has begun.
    is_answered_again = verb == "DONE" and request.family is ONCE
    may_be_repeated = in_doubt and not (renewal and part.is_first)
    if confirm is not None and may_be_repeated and (reply or not is_answered_again):
        raise NotConfirmed(request.key, 0, confirm.wanted())
    # An earlier request can have ended the hold, and its answer was lost. One that was refused has not.
    return reply > 0 or (in_doubt and not (was_lost or is_answered_again))


async def wait_for_round(talk: Talk, timeout: Optional[float], retry_for: float) -> Optional[tuple[int, int]]:
    """Waits until the round of a group is finished: how many were done, how many lost. ``None`` when time is up."""
    deadline = None if timeout is None else now() + timeout
    patience = Patience(talk.key, retry_for, deadline)
    while True:
        seconds = _at_most(BLOCK_AT_MOST, deadline)
        try:
            reply = await talk.block(["DWG.WAIT", talk.key, "BLOCK", milliseconds(seconds)], seconds)
        except Exception as error:
            # The group is gone. Asking again would be answered as if there had never been one: finished, by nobody.
            if "group was removed" in str(error):
                raise
            await talk.pause(patience.pause_after(error))
            continue
        patience.answered()
        if reply is not None:
            return int(reply[0]), int(reply[1])
        if deadline is not None and now() >= deadline:
            return None


async def ask(talk: Talk, words: Words, retry_for: float) -> Any:
    """Sends a command that may be repeated, until it is answered."""
    patience = Patience(talk.key, retry_for)
    while True:
        try:
            return await talk.ask(words)
        except Exception as error:
            await talk.pause(patience.pause_after(error))


async def not_acquired(talk: Talk, request: Request, is_try: bool) -> NotAcquired:
    """Returns the error for a wait that is over. It names who holds the key, if the server tells that in time."""
    info: Mapping[str, Any] = {}
    with contextlib.suppress(Exception):
        words = request.family.info(request.key, _protocol.HOLDERS_TOLD)
        info = fields(await talk.ask(words, WITHDRAW_TRY_WITHIN if is_try else WITHDRAW_WITHIN))
    state = info.get("state")
    return NotAcquired(request.key, holders(info), None if state is None else text(state))

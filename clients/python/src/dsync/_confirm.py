"""Confirmed holds: WAIT behind a command, on the same connection. No I/O.

An answer that the replicas do not confirm is no answer. So it is replaced, where replies are read, by
:class:`~dsync.NotConfirmed`, an error that passes: who asked asks again, and nothing else knows of replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Awaitable, Callable, Iterable, Optional, Sequence, Union

from ._lease import now
from ._protocol import Granted, Words, answer, milliseconds, text
from ._retry import explain, passes
from .errors import NotConfirmed

#: As many replicas as the primary has attached, at least one.
ALL = "all"


@dataclass(frozen=True)
class Confirm:
    """What has to know of a grant, a renewal or a DONE before it counts."""

    #: How many replicas, or :data:`ALL`; 0 with ``disk`` only.
    replicas: Union[int, str]
    #: Seconds that WAIT waits.
    within: float
    #: Whether it has to be on the disks of the primary and of the replicas.
    disk: bool = False
    #: The moment until which WAIT alone is repeated: a repeated DONE is no write, and WAIT behind it tells nothing.
    until: float = 0.0

    def at_most(self, seconds: float) -> Confirm:
        return replace(self, within=min(self.within, seconds))

    def wanted(self, attached: int = 0) -> int:
        return max(1, attached) if self.replicas == ALL else int(self.replicas)


class Part:
    """Commands of one caller, what has to confirm their answers, if anything, and their replies so far."""

    def __init__(self, commands: Sequence[Words], confirm: Optional[Confirm] = None) -> None:
        self.confirm = confirm
        self._commands = commands
        self.begin(is_asking=False)

    def begin(self, *, is_asking: bool) -> None:
        """Has the commands sent from here, each right behind ASKING where the server is only about to have the slot."""
        self._is_asking = is_asking
        self._replies: list[Any] = []
        self._refusal: Optional[NotConfirmed] = None

    @property
    def commands(self) -> Sequence[Words]:
        if not self._is_asking:
            return self._commands
        asking: Words = ["ASKING"]
        return [words for command in self._commands for words in (asking, command)]

    @property
    def is_sent(self) -> bool:
        return bool(self._replies)

    @property
    def is_open(self) -> bool:
        """Whether another round is needed: the commands were not sent yet, or WAIT is to be repeated."""
        again = self._refusal is not None and self.needs_it
        return not self.is_sent or (again and self.confirm is not None and now() < self.confirm.until)

    @property
    def needs_it(self) -> bool:
        return self.confirm is not None and self.is_first and any(map(_needs_it, self._replies))

    @property
    def is_first(self) -> bool:
        """Whether the last command is no repetition, as far as a RENEW before it tells: it has found the hold."""
        return all(reply and not isinstance(reply, Exception) for reply in self._replies[:-1])

    @property
    def replies(self) -> list[Any]:
        """The replies, errors among them."""
        refusal = self._refusal
        return self._replies if refusal is None else [refusal if _needs_it(reply) else reply for reply in self._replies]

    def hears(self, replies: list[Any]) -> None:
        self._replies = replies[1::2] if self._is_asking else replies
        for words, reply in zip(self._commands, self._replies):
            if isinstance(reply, Exception):
                explain(reply, words)

    def judge(self, confirm: Confirm, told: Any, attached: int) -> None:
        """Takes what WAIT or WAITAOF has answered."""
        wanted = confirm.wanted(attached)
        self._refusal = None
        if not isinstance(told, Exception):
            is_on_disk = not confirm.disk or int(told[0]) > 0
            have = int(told[1] if confirm.disk else told)
        elif passes(told) or "replica instances" in str(told):
            # The server is a replica by now. Nothing more is heard of it here.
            self.confirm = replace(confirm, until=0.0)
            is_on_disk, have = False, 0
        else:
            if "unknown command" in str(told) and confirm.disk:
                told = type(told)(f"disk needs Redis 7.2 or Valkey on the server: {told}")
            self._replies = [told if _needs_it(reply) else reply for reply in self._replies]
            return
        if not is_on_disk:
            have, wanted = 0, max(1, wanted)
        if have < wanted:
            self._refusal = NotConfirmed(text(self._commands[-1][1]), have, wanted)


def _needs_it(reply: Any) -> bool:
    """Returns whether the reply is a grant, a renewal or a DONE. All others count as they are."""
    if isinstance(reply, int):
        return reply > 0
    return isinstance(reply, list) and isinstance(answer(reply), Granted)


async def commit(parts: Sequence[Part], exchange: Callable[[list[Words]], Awaitable[list[Any]]]) -> None:
    """Plays one round for all of them. ``exchange`` writes commands at once, and returns their replies, errors too.

    One WAIT is for the highest number of replicas; each part is judged by its own.
    """
    confirms = [part.confirm for part in parts if part.confirm is not None]
    if not confirms and len(parts) == 1:
        # The usual case.
        return parts[0].hears(await exchange(list(parts[0].commands)))
    asked = [part for part in parts if not part.is_sent]
    commands = [words for part in asked for words in part.commands]
    counts = any(confirm.replicas == ALL for confirm in confirms)
    replies = await exchange([*commands, *([["ROLE"]] if counts else _waits(confirms, 0))])
    for part in asked:
        count = len(part.commands)
        part.hears(replies[:count])
        replies = replies[count:]
    if not any(part.needs_it for part in parts):
        return
    attached = 0
    if counts and not isinstance(replies[0], Exception):
        # A replica's ROLE has no list there, and its WAIT is an error.
        attached = len(replies[0][2]) if text(replies[0][0]) == "master" else 0
        replies = await exchange(_waits(confirms, attached))
    for part in parts:
        if part.confirm is not None and part.needs_it:
            # ROLE that is refused is the answer to all.
            part.judge(part.confirm, replies[-1 if part.confirm.disk else 0], attached)


def _waits(confirms: Sequence[Confirm], attached: int) -> list[Words]:
    """Returns WAIT for those that want replicas, then WAITAOF for those that want disks."""
    words: list[Words] = []
    within = milliseconds(patience(confirms))
    for disk, command in ((False, ["WAIT"]), (True, ["WAITAOF", 1])):
        wanted = [confirm.wanted(attached) for confirm in confirms if confirm.disk is disk]
        if wanted:
            words.append([*command, max(wanted), within])
    return words


def patience(confirms: Iterable[Optional[Confirm]]) -> float:
    """Returns for how many seconds WAIT waits for all of these."""
    return max((confirm.within for confirm in confirms if confirm is not None), default=0.0)

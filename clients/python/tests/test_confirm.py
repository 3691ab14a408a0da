"""Confirmed holds: what is said behind a command, and what an answer is worth. Rows tell the same of real replicas."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any, Optional, cast

import pytest
import redis
import redis.asyncio
from servers import SOON, Server, closing, eventually, replica_of
from story import GONE, GRANTED, QUEUED, REQUEST, Script, Story, script

import dsync
from dsync import _steps, aio
from dsync._confirm import Confirm, Part, commit
from dsync._lease import Lease
from dsync._protocol import ONCE, Request, Words
from dsync._settings import Settings
from dsync._sync._threads import complete

ONE, TWO = Confirm(1, 0.5), Confirm(2, 0.2)
RENEW: Words = ["DLOCK.RENEW", "k", "t"]


def played(parts: list[Part], *replies: list[Any]) -> list[str]:
    """Plays a round in which the server answers so. Returns what was written each time."""
    said: list[str] = []
    answers = iter(replies)

    async def exchange(commands: list[Words]) -> list[Any]:
        said.append(" | ".join(" ".join(map(str, words)) for words in commands))
        return next(answers)

    complete(commit(parts, exchange))
    assert next(answers, None) is None
    return said


def told(reply: Any) -> Any:
    return (reply.have, reply.wanted) if isinstance(reply, dsync.NotConfirmed) else reply


@pytest.mark.parametrize(
    ("reply", "waited", "expected"),
    [
        ([b"t", 7], 1, [b"t", 7]),
        ([b"t", 7], 0, (0, 1)),
        ([b"RUN", b"t", 7, 1], 0, (0, 1)),
        (1, 0, (0, 1)),
        # These count as they are.
        ([b"WAITING", 1, b"channel"], 0, [b"WAITING", 1, b"channel"]),
        ([b"DONE", b"r", 1], 0, [b"DONE", b"r", 1]),
        (None, 0, None),
        (0, 0, 0),
        # The server is a replica by now.
        (1, redis.ResponseError("WAIT cannot be used with replica instances. Please also note"), (0, 1)),
        (1, redis.ResponseError("UNBLOCKED force unblock from blocking operation"), (0, 1)),
    ],
)
def test_answer_that_is_not_confirmed_is_no_answer(reply: Any, waited: Any, expected: Any) -> None:
    part = Part([RENEW], ONE)
    assert played([part], [reply, waited]) == ["DLOCK.RENEW k t | WAIT 1 500"]
    assert told(part.replies[0]) == expected


def test_one_wait_for_the_highest_number_serves_all_parts() -> None:
    parts = [Part([RENEW], ONE), Part([RENEW, RENEW], TWO), Part([RENEW], Confirm(0, 0.1, disk=True))]
    renew = "DLOCK.RENEW k t"
    assert played(parts, [1, 1, 0, 1, 1, [1, 0]]) == [
        f"{renew} | {renew} | {renew} | {renew} | WAIT 2 500 | WAITAOF 1 0 500"
    ]
    assert [[told(reply) for reply in part.replies] for part in parts] == [[1], [(1, 2), 0], [1]]


@pytest.mark.parametrize(
    ("role", "waited", "wait", "expected"),
    [
        ([b"master", 1, [b"a", b"b", b"c"]], 2, "WAIT 3 500", (2, 3)),
        ([b"master", 1, []], 0, "WAIT 1 500", (0, 1)),
        ([b"slave", b"host", 1, b"connected", 1], redis.ResponseError("ERR replica instances"), "WAIT 1 500", (0, 1)),
    ],
)
def test_all_is_as_many_as_are_attached(role: Any, waited: Any, wait: str, expected: Any) -> None:
    part = Part([RENEW], Confirm("all", 0.5))
    assert played([part], [1, role], [waited]) == ["DLOCK.RENEW k t | ROLE", wait]
    assert told(part.replies[0]) == expected


@pytest.mark.parametrize(
    ("replicas", "synced", "expected"), [(1, [1, 1], 1), (1, [1, 0], (0, 1)), (1, [0, 1], (0, 1)), (0, [0, 0], (0, 1))]
)
def test_disk_is_that_of_the_primary_too(replicas: int, synced: list[int], expected: Any) -> None:
    part = Part([RENEW], Confirm(replicas, 0.5, disk=True))
    played([part], [1, synced])
    assert told(part.replies[0]) == expected


def test_refused_wait_is_the_answer() -> None:
    part = Part([RENEW, RENEW], ONE)
    refusal = redis.ResponseError("NOPERM this user has no permissions to run the 'wait' command")
    played([part], [1, 0, refusal])
    assert part.replies == [refusal, 0]


def test_done_is_sent_once_where_it_is_answered() -> None:
    """A repeated DONE writes nothing, and WAIT behind it said 1 although no replica had the first."""
    part = Part([["DONCE.DONE", "k", "t"]], Confirm(1, 0.5, until=time.monotonic() * 2 + 1_000))
    assert played([part], [1, 0]) == ["DONCE.DONE k t | WAIT 1 500"]
    assert part.is_open
    assert played([part], [1]) == ["WAIT 1 500"]
    assert not part.is_open
    assert part.replies == [1]


def test_only_what_was_answered_is_waited_for_again() -> None:
    """WAIT was repeated for 35 s behind a DONE that had found no run, where another's had found one."""
    until = time.monotonic() * 2 + 1_000
    asked: list[list[Words]] = [[RENEW], [["ASKING"], RENEW], [RENEW]]
    parts = [Part(commands, Confirm(1, 0.5, until=until)) for commands in asked]
    played(parts, [0, b"OK", 0, 1, 0])
    assert [part.is_open for part in parts] == [False, False, True]


def acquire(seconds: Optional[float] = None) -> Any:
    return script(_steps.acquire, REQUEST, Settings(wait=seconds, replicas=1, within=ONE.within))


def test_grant_that_is_not_confirmed_is_asked_for_again(story: Story) -> None:
    few = dsync.NotConfirmed("k", 0, 1)
    grant = story.run(acquire(), QUEUED, (few, 0.5), (few, 0.5), GRANTED)
    # It counts from the request that was confirmed.
    assert grant.sent == story.time
    with pytest.raises(dsync.NotConfirmed):
        story.run(acquire(5), *[(few, 0.5)] * 20)
    assert story.verbs()[-1] == "RELEASE t"


def test_try_tells_that_it_was_not_confirmed(story: Story) -> None:
    """On a busy machine the rest of its two seconds was too short for an answer."""
    with pytest.raises(dsync.NotConfirmed):
        story.run(acquire(0), (dsync.NotConfirmed("k", 0, 1), 0.5), *[(GONE, 0.5)] * 5)
    with pytest.raises(redis.ResponseError, match="NOPERM"):
        story.run(acquire(0), (dsync.NotConfirmed("k", 0, 1), 0.5), redis.ResponseError("NOPERM"), 1)


def done(request: Request = REQUEST, **words: Any) -> Script:
    return lambda talk: _steps.finish(cast(Any, talk), request, "DONE", retry_for=5, **words)


def test_done_that_may_be_repeated_is_not_confirmed(story: Story) -> None:
    unsent = ConnectionError("refused")
    unsent.is_unsent = True  # type: ignore[attr-defined]
    assert story.run(done(confirm=ONE), unsent, 1)
    for error in (GONE, dsync.NotConfirmed("k", 0, 1)):
        with pytest.raises(dsync.NotConfirmed) as few:
            story.run(done(confirm=ONE), error, 1)
        assert (few.value.have, few.value.wanted) == (0, 1)
    assert story.run(done(), GONE, 1)


def test_done_that_may_be_repeated_comes_behind_a_renewal(story: Story) -> None:
    """Where it finds the hold this DONE is the first. It was called not confirmed after a sending that was lost."""
    lease = Lease(9.0, 1.0, story.time)
    once = replace(REQUEST, family=ONCE)

    def end(request: Request, *replies: Any) -> Any:
        story.said.clear()
        return story.run(done(request, confirm=ONE, lease=lease), *replies)

    assert end(REQUEST, GONE, 1)
    assert story.said == ["DLOCK.DONE k t", "DLOCK.RENEW k t PX 9000 + DLOCK.DONE k t"]
    assert not end(once, GONE, [0, 0]), "another attempt has begun"
    # Of a member 0 may be the answer to a repetition as well, of which nobody knows who has the first.
    for request, replies in ((REQUEST, [0, 1]), (REQUEST, [0, 0]), (once, [0, 1]), (once, [GONE, 1])):
        with pytest.raises(dsync.NotConfirmed, match="0 of 1"):
            end(request, GONE, replies)
    lease.end("lost")
    with pytest.raises(dsync.NotConfirmed, match="0 of 1"):
        end(REQUEST, GONE, 1)
    assert story.said == ["DLOCK.DONE k t"] * 2


@pytest.mark.parametrize(("renewed", "is_open"), [(1, True), (0, False)])
def test_done_that_may_be_repeated_waits_for_replicas_if_it_is_the_first(renewed: int, is_open: bool) -> None:
    part = Part([RENEW, ["DLOCK.DONE", "k", "t"]], Confirm(1, 0.5, until=time.monotonic() * 2 + 1_000))
    assert played([part], [renewed, 1, 0]) == ["DLOCK.RENEW k t | DLOCK.DONE k t | WAIT 1 500"]
    assert (part.is_first, part.is_open) == (bool(renewed), is_open)


@pytest.mark.parametrize(
    "options",
    [{"replicas": 0}, {"replicas": True}, {"replicas": "most"}, {"replicas": 1.5}, {"replicas": 1, "within": 0}],
)
def test_bounds_are_checked_before_anything_is_sent(options: Any) -> None:
    with pytest.raises(ValueError, match="not"):
        dsync.lock(redis.Redis(port=1), "k", **options)


def test_server_without_waitaof_is_named(own_server: Server) -> None:
    own_server.client().config_set("appendonly", "yes")
    try:
        with dsync.lock(own_server.client(), "k", wait=5, disk=True) as hold:
            assert hold.renew()
    except redis.ResponseError as error:
        assert "needs Redis 7.2" in str(error)  # noqa: PT017
        assert own_server.client().execute_command("DLOCK.INFO", "k") is None


def test_connection_that_ends_leaves_a_done_unconfirmed() -> None:
    primary = Server()
    replica = replica_of(primary)
    with closing(primary, replica):
        client = primary.client()

        def interrupt() -> None:
            eventually(lambda: client.execute_command("DONCE.GET", "k"), "a DONE")
            client.client_kill_filter(_type="normal", skipme=True)

        with pytest.raises(dsync.NotConfirmed, match="0 of 1"), dsync.once.begin(client, "k", replicas=1) as run:
            run.result = "r"
            replica.stop()
            threading.Thread(target=interrupt).start()
        assert client.execute_command("DONCE.GET", "k")[1] == b"r"


async def test_requests_of_all_tasks_are_confirmed_together(server: Server) -> None:
    """One WAIT each, on one connection, would have made the last of them wait for all the others."""
    replica = replica_of(server)
    with closing(replica):
        async with redis.asyncio.Redis(port=server.port) as client:
            await client.config_resetstat()
            # A WAIT that ends without an answer has its request begin once more, at a time of its own.
            claims = [aio.lock(client, f"k{number}", replicas=1, within=SOON, lease=60) for number in range(100)]
            holds = await asyncio.gather(*[claim.acquire() for claim in claims])
            waits = (await client.info("commandstats"))["cmdstat_wait"]["calls"]
            assert waits < 20, waits
            await asyncio.gather(*[hold.release() for hold in holds])

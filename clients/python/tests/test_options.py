"""The options of locks and semaphores that say who is next and for how long: lanes, rests and indexes."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
from modes import LONGEST_CALL, Mode, User, modes
from servers import until_waiting
from story import GONE, QUEUED, Story, script
from test_lock import waiters
from test_modes import started
from test_scripts import acquire, waits

import dsync
import dsync.aio
from dsync import _steps
from dsync._protocol import SEMAPHORE, GivenUp, Request
from dsync._settings import min_hold_words


def aside(user: User, claim: Any) -> "Future[Any]":
    """Has a thread wait for a hold."""
    return ThreadPoolExecutor(1).submit(lambda: user.do(claim.acquire()))


@modes("one")
def test_index_is_the_lowest_that_is_free(mode: Mode) -> None:
    with started(mode) as (server, user):
        first, second = (user.do(user.semaphore("s", limit=2, index=True).acquire()) for _ in range(2))
        assert (first.index, second.index) == (0, 1)
        for own_connection in (True, False):
            next_one = aside(user, user.semaphore("s", limit=2, index=True, own_connection=own_connection))
            until_waiting(lambda: waiters(server.client()), 1)
            user.do(first.release())
            first = next_one.result(LONGEST_CALL)
            assert first.index == 0
        server.client().execute_command("DSEM.REVOKE", "s", second.fence)
        assert not user.do(second.renew())
        assert (second.index, second.left(), second.lost.is_set()) == (1, 0, True)
        assert not user.do(second.release())
        user.do(first.release())
        for claim in (user.semaphore("s", limit=1), user.lock("k")):
            with user.block(claim) as hold:
                assert hold.index is None


@modes("one")
def test_hold_that_ends_early_rests(mode: Mode) -> None:
    with started(mode) as (server, user):
        for key, claim in (("k", user.lock), ("s", lambda key, **options: user.semaphore(key, limit=1, **options))):
            with user.block(claim(key, min_hold=60, owner="web-1")) as hold:
                pass
            refusal = rf"held by web-1 \(fence {hold.fence}, ended, rests for another \d+\.\d s\)"
            with pytest.raises(dsync.NotAcquired, match=refusal) as refused:
                user.do(claim(key, wait=0).acquire())
            resting = refused.value.holders[0].resting
            assert resting is not None
            assert 0 < resting <= 60
            server.client().delete(key)

            begun = time.monotonic()
            for _ in range(3):
                with user.block(claim(key, min_hold=0.5)):
                    pass
            assert time.monotonic() - begun >= 1


@pytest.mark.parametrize(("package", "library"), [(dsync, redis), (dsync.aio, redis.asyncio)])
def test_nonsense_is_refused_before_anything_is_sent(package: Any, library: Any) -> None:
    client = library.Redis(port=1)
    with pytest.raises(ValueError, match="lane_limit is the limit of a lane"):
        package.semaphore(client, "s", limit=5, lane_limit=2)
    with pytest.raises(ValueError, match="index is for one permit, not 2"):
        package.semaphore(client, "s", limit=5, permits=2, index=True)
    for claim in (package.lock, package.semaphore):
        with pytest.raises(ValueError, match=r"min_hold is None or a number of seconds above 0 .*, not -1"):
            claim(client, "k", min_hold=-1)
    for wrong in (
        {"lease": "30"},
        {"lease": None},
        {"lease": float("inf")},
        {"wait": -1},
        {"retry_for": None},
        {"margin": "1"},
        {"lease": 31 * 86_400},
    ):
        [(name, value)] = wrong.items()
        with pytest.raises(ValueError, match=f"{name} is .*a number of seconds.*, not {value!r}"):
            package.lock(client, "k", **{name: value})
    # Once the work is done, it would be too late to say so.
    for name, value in (("keep", 0), ("keep", float("inf")), ("keep", "1"), ("retry_delay", -1)):
        with pytest.raises(ValueError, match=f"{name} is None or a number of seconds.*, not {value!r}"):
            package.once.begin(client, "k", **{name: value})
    count = "a whole number from 1 to 1000000"
    counts: list[tuple[str, Any]] = [
        ("limit", 0),
        ("limit", "5"),
        ("limit", 1_000_001),
        ("limit", True),
        ("permits", 0),
    ]
    for name, value in counts:
        with pytest.raises(ValueError, match=f"{name} is .*{count}, not {value!r}"):
            package.semaphore(client, "s", **{name: value})
    with pytest.raises(ValueError, match=f"limit is None or {count}, not 0"):
        package.group(client, "g", limit=0)
    with pytest.raises(ValueError, match=f"max_attempts is None or {count}, not 0"):
        package.once.begin(client, "k", max_attempts=0)
    with pytest.raises(ValueError, match="owner is None or a text of 0 to 128 bytes"):
        package.lock(client, "k", owner=65 * "ü")
    with pytest.raises(ValueError, match="lane is None or a text of 1 to 128 bytes"):
        package.semaphore(client, "s", lane="")
    for key in ("", b"", None):
        with pytest.raises(ValueError, match="key is a text"):
            package.lock(client, key)
        with pytest.raises(ValueError, match="key is a text"):
            package.group(client, key)
    with pytest.raises(ValueError, match="within is for replicas"):
        package.lock(client, "k", within=1)
    with pytest.raises(ValueError, match="kept forever"):
        package.once.begin(client, "k", forever=True, keep=1)
    with pytest.raises(TypeError, match="no option 'lanes', did you mean 'lane'"):
        package.semaphore(client, "s", lanes="a")
    with pytest.raises(TypeError, match="no option 'lane'"):
        package.lock(client, "k", lane="a")


@pytest.mark.parametrize("own_connection", [True, False])
def test_options_are_those_of_each_repeat_and_the_index_that_of_the_last_answer(
    monkeypatch: pytest.MonkeyPatch, own_connection: bool
) -> None:
    story = Story(monkeypatch)
    claim = dsync.semaphore(redis.Redis(), "k", 5, lane="tenant:7", lane_limit=2, min_hold=0.25, index=True)
    request = Request(SEMAPHORE, "k", "t", lease=9.0, owner=None, options=claim._kind.options)
    ask = script(_steps.acquire, request, waits(None, own_connection))
    grant = story.run(ask, GONE, QUEUED, GONE, QUEUED, [b"t", 7, 0])
    assert (grant.told.fence, grant.told.index) == (7, 0)
    asked = [line.split(" PX 9000 TOKEN t ")[0] for line in story.said if line.startswith("DSEM.")]
    assert asked == ["DSEM.ACQUIRE k LIMIT 5 PERMITS 1 LANE tenant:7 LANELIMIT 2 MINHOLD 250 INDEX"] * 5


@pytest.mark.parametrize(("seconds", "ms"), [(1e-5, 1), (0.055, 55), (1 / 30, 34), (60, 60_000)])
def test_rest_is_no_shorter_than_it_was_asked_for(seconds: float, ms: int) -> None:
    assert min_hold_words(seconds) == ("MINHOLD", ms)


def test_attempts_that_are_used_up_are_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Story(monkeypatch).run(acquire(), [b"FAILED", b"lapsed", 3]) == GivenUp("lapsed", 3)

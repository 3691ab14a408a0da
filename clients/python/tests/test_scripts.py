"""The scripts without a server: the clock and the replies are the test's."""

import os
import pwd
import socket
import threading
from types import SimpleNamespace
from typing import Any, Callable, Optional, cast

import pytest
import redis
import redis.exceptions
import valkey.exceptions
from servers import eventually
from story import GONE, GRANTED, QUEUED, REQUEST, Script, Story, script

import dsync
from dsync import _lease, _protocol, _retry, _steps
from dsync._claim import in_order
from dsync._lease import Lease, default_margin
from dsync._protocol import Done, Granted
from dsync._route import _Guides
from dsync._settings import Settings
from dsync._source import Source
from dsync._steps import Grant
from dsync._sync._alarm import Clock
from dsync._sync._threads import complete


def waits(seconds: Optional[float] = None, own_connection: bool = True) -> Settings:
    return Settings(wait=seconds, own_connection=own_connection)


def acquire(seconds: Optional[float] = None, own_connection: bool = True) -> Script:
    return script(_steps.acquire, REQUEST, waits(seconds, own_connection))


def test_free_lock_costs_one_command(story: Story) -> None:
    assert story.run(acquire(), GRANTED) == Grant(REQUEST, Granted(7), 1_000.0)
    assert story.verbs() == ["ACQUIRE QUEUE 5000"]


def test_wait_takes_a_place_and_blocks_on_it(story: Story) -> None:
    grant = story.run(acquire(), QUEUED, (None, 2), (None, 2), (GRANTED, 2), (1, 0.5))
    assert story.verbs() == [
        "ACQUIRE QUEUE 5000",
        "ACQUIRE BLOCK 2000",
        "ACQUIRE BLOCK 2000",
        "ACQUIRE BLOCK 2000",
        "RENEW t PX 9000",
    ]
    # The lease counts from the moment at which the renewal was sent.
    assert grant.sent == 1_006.0


@pytest.mark.parametrize(("seconds", "is_renewed"), [(0.9, False), (0.91, True)])
def test_grant_is_renewed_unless_it_was_asked_for_a_moment_ago(story: Story, seconds: float, is_renewed: bool) -> None:
    story.run(acquire(), QUEUED, (GRANTED, seconds), 1)
    assert (story.verbs()[-1] == "RENEW t PX 9000") is is_renewed


def test_hold_that_ended_before_its_renewal_is_asked_for_with_a_new_token(story: Story) -> None:
    grant = story.run(acquire(), QUEUED, (GRANTED, 2), 0, GRANTED)
    assert grant.request.token != "t"


def test_wait_without_connection_asks_again_after_the_subscription_and_each_turn(story: Story) -> None:
    story.run(acquire(own_connection=False), QUEUED, QUEUED, QUEUED, GRANTED)
    ask, turn = "ACQUIRE QUEUE 5000", "turn 1.66667"
    assert story.verbs() == [ask, "watch dsync:{k}:1", ask, turn, ask, turn, ask]


@pytest.mark.parametrize("own_connection", [True, False])
def test_wait_ends_in_time_and_is_withdrawn(story: Story, own_connection: bool) -> None:
    replies: list[Any] = [QUEUED, (None, 2), (None, 1)] if own_connection else [QUEUED] * 4
    assert story.run(acquire(3, own_connection), *replies, 1) is None
    assert story.verbs()[-1] == "RELEASE t"
    assert story.time == 1_003.0


def test_try_is_asked_once_and_not_withdrawn(story: Story) -> None:
    assert story.run(acquire(0), None) is None
    assert story.verbs() == ["ACQUIRE"]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("closed"),
        socket.gaierror("a name is not found for a moment"),
        redis.TimeoutError("late"),
        valkey.exceptions.ConnectionError("closed"),
        redis.ResponseError("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        redis.exceptions.MovedError("1 127.0.0.1:7001"),
        redis.exceptions.ReadOnlyError("You can't write"),
        redis.exceptions.OutOfMemoryError("command not allowed"),
        redis.ResponseError("TRYAGAIN"),
        redis.ResponseError("CLUSTERDOWN"),
        redis.ResponseError("NOREPLICAS"),
        redis.ResponseError("MISCONF"),
        redis.ResponseError("BUSY Redis is busy running a script"),
        valkey.exceptions.ResponseError("OOM command not allowed"),
    ],
)
def test_request_is_repeated_with_its_token_over_errors_that_pass(story: Story, error: Exception) -> None:
    assert story.run(acquire(), QUEUED, error, QUEUED, GRANTED).request is REQUEST
    assert story.verbs() == ["ACQUIRE QUEUE 5000", "ACQUIRE BLOCK 2000", "ACQUIRE QUEUE 5000", "ACQUIRE BLOCK 2000"]


class OwnTimeoutError(Exception):
    """Called by a name that libraries use, too."""


OwnTimeoutError.__name__ = "TimeoutError"


@pytest.mark.parametrize(
    "error",
    [
        redis.ResponseError("TOOMANY"),
        redis.ResponseError("BUSYKEY"),
        redis.ResponseError("UNBLOCKED released: RELEASE with the token of this request has withdrawn it"),
        redis.ResponseError("UNBLOCKED superseded: the same token asked again"),
        redis.AuthenticationError("wrong"),
        redis.exceptions.RedisClusterException("shard_hint is deprecated"),
        TimeoutError("of signal.alarm"),
        OwnTimeoutError("of the program"),
        OSError("of the program"),
        Exception("READONLY by name only"),
    ],
)
def test_error_that_lasts_is_raised_at_once_and_the_request_withdrawn(story: Story, error: Exception) -> None:
    """A name or a text is no proof: a wait of six seconds went on over the TimeoutError of the program's own alarm."""
    with pytest.raises(type(error), match=str(error)):
        story.run(acquire(), error, 0, 0)
    assert story.verbs() == ["ACQUIRE QUEUE 5000", "RELEASE t", "RELEASE t"]


def test_server_out_of_reach_is_given_up_after_so_long(story: Story) -> None:
    with pytest.raises(ConnectionError, match="gone"):
        story.run(acquire(), *[GONE] * 200)
    assert 1_030.0 <= story.time < 1_031.0


def test_each_answer_begins_the_time_out_of_reach_anew(story: Story) -> None:
    replies: list[Any] = []
    for _ in range(5):
        replies += [QUEUED, (GONE, 20)]
    assert story.run(acquire(), *replies, GRANTED)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_caller_that_gives_up_withdraws(story: Story, error: BaseException) -> None:
    with pytest.raises(type(error)):
        story.run(acquire(), QUEUED, error, 1)
    assert story.verbs()[-1] == "RELEASE t"


def test_withdrawal_is_repeated_once_if_the_request_may_not_have_arrived(story: Story) -> None:
    with pytest.raises(KeyboardInterrupt):
        story.run(acquire(), KeyboardInterrupt(), 0, 1)
    assert story.verbs()[-2:] == ["RELEASE t", "RELEASE t"]


def test_work_that_is_done_is_told(story: Story) -> None:
    assert story.run(acquire(), [b"DONE", b"ch_7", 2]) == Done(b"ch_7", 2)


def test_hold_counts_as_lost_a_margin_before_its_lease_ends(story: Story) -> None:
    lease = Lease(9.0, 0.9, 1_000.0)
    story.time = 1_008.0
    assert lease.why_lost() is None
    assert lease.left() == pytest.approx(0.1)
    story.time = lease.lost_at()
    assert lease.left() == 0.0
    assert lease.why_lost() is not None
    assert (default_margin(9.0), default_margin(60.0)) == (0.9, 2.0)


def test_older_renewal_does_not_shorten_the_lease(story: Story) -> None:
    lease = Lease(9.0, 0.9, 1_000.0)
    story.time = 1_003.0
    older = lease.asks()
    story.time = 1_005.0
    lease.renewed(lease.asks())
    assert lease.renewal_due_at() == 1_008.0
    lease.renewed(older)
    assert lease.lost_at() == 1_003.0 + 9.0 - 0.9, "it may have arrived behind the other one"
    assert lease.renewal_due_at() == 1_005.0
    lease.renewed(lease.asks())
    assert lease.lost_at() == 1_005.0 + 9.0 - 0.9


def end(verb: str, retry_for: float = 5.0) -> Script:
    return lambda talk: _steps.finish(cast(Any, talk), REQUEST, verb, retry_for=retry_for)


def test_release_is_repeated_until_it_is_answered(story: Story) -> None:
    assert story.run(end("RELEASE"), GONE, GONE, 1)
    assert story.run(end("RELEASE"), GONE, 0)
    assert not story.run(end("RELEASE"), 0)
    with pytest.raises(ConnectionError):
        story.run(end("RELEASE"), *[GONE] * 200)


@pytest.mark.parametrize("verb", ["RELEASE", "DONE"])
def test_end_is_repeated_for_as_long_as_the_server_can_know_the_hold(story: Story, verb: str) -> None:
    """It was given up after 5 s: the promoted server had the hold for another lease, and work was done twice."""
    retry_for = _steps.lives_for(REQUEST.lease)
    assert retry_for == REQUEST.lease + 5
    assert story.run(end(verb, retry_for), *[(GONE, 2)] * 6, 1)
    assert story.time > 1_000 + REQUEST.lease


def test_release_that_finds_nothing_is_a_loss_unless_an_earlier_one_may_have_ended_it(story: Story) -> None:
    unsent = ConnectionError("refused")
    unsent.is_unsent = True  # type: ignore[attr-defined]
    for refused in (redis.ResponseError("BUSY a script"), redis.exceptions.BusyLoadingError("loading"), unsent):
        assert not story.run(end("RELEASE"), refused, 0)
        assert story.run(end("RELEASE"), refused, GONE, 0)


def test_end_goes_on_over_a_refused_greeting(story: Story) -> None:
    for error in (redis.AuthenticationError("WRONGPASS"), redis.ResponseError("DB index is out of range")):
        error.is_unsent = True  # type: ignore[union-attr]
        assert story.run(end("DONE"), error, 1)
        with pytest.raises(type(error)):
            story.run(acquire(), error, 1)
    own = TimeoutError("of signal.alarm")
    own.is_unsent = True  # type: ignore[attr-defined]
    with pytest.raises(TimeoutError):
        story.run(end("DONE"), own, 1)


def test_refused_done_becomes_fail_and_the_refusal_is_raised(story: Story) -> None:
    refusal = redis.exceptions.ResponseError("RESULT is too long")
    block = dsync.once.begin(redis.Redis(), "k")
    hold: Any = SimpleNamespace(_end=lambda talk, verb, *_: end(verb)(talk), _leave=lambda _: False)

    def leave(talk: Any) -> Any:
        return block._leaving(talk, dsync.Run(hold, 1), None)

    for replies in ((refusal, GONE, 1), (refusal, redis.exceptions.ResponseError("NOPERM"))):
        story.said.clear()
        with pytest.raises(redis.exceptions.ResponseError, match="too long"):
            story.run(leave, *replies)
        assert story.said == ["DLOCK.DONE k t"] + ["DLOCK.FAIL k t"] * (len(replies) - 1)
    # An error that passes says nothing about the result.
    story.said.clear()
    story.run(leave, GONE, 1)
    assert story.said == ["DLOCK.DONE k t"] * 2
    with pytest.raises(ConnectionError):
        story.run(leave, *[GONE] * 200)
    assert "DLOCK.FAIL k t" not in story.said


def test_clock_goes_on_with_a_machine_that_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows have no clock that does: the monotonic one stands still, and only the wall clock jumps."""
    monotonic, wall = [100.0], [1_000_000.0]
    clocks = SimpleNamespace(monotonic=lambda: monotonic[0], time=lambda: wall[0])
    monkeypatch.setattr(_lease, "time", clocks)
    monkeypatch.setattr(_lease, "_CLOCK", None)
    monkeypatch.setattr(_lease, "_CLOCKS", _lease.Clocks())
    lease = Lease(60.0, 2.0, _lease.now())

    def passes(by_monotonic: float, by_wall: float) -> float:
        before = _lease.now()
        monotonic[0] += by_monotonic
        wall[0] += by_wall
        return _lease.now() - before

    assert passes(10, 10) == pytest.approx(10)
    # The wall clock is slewed a little, or set back.
    assert passes(10, 10.05) == pytest.approx(10)
    assert passes(10, -3_600) == pytest.approx(10)
    assert lease.left() == pytest.approx(28)
    # A suspension; then nothing more.
    assert passes(1, 50) == pytest.approx(50)
    assert lease.left() == 0
    assert passes(1, 1) == pytest.approx(1)


def test_owner_is_user_host_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was spelled in three ways, so REVOKE by a pattern missed some."""
    user, _, rest = _protocol.default_owner().partition("@")
    assert rest == f"{socket.gethostname()}:{os.getpid()}"
    assert user == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    assert _protocol.default_owner().startswith(f"{user}@"), "it is looked up once"
    afresh = _protocol._owner_of.__wrapped__
    assert afresh(os.getpid()).startswith("54321@")
    monkeypatch.setattr(socket, "gethostname", lambda: "ü" * 200)
    owner = afresh(os.getpid())
    assert owner.endswith(f"ü:{os.getpid()}")
    assert 126 < len(owner.encode()) <= 128


def test_keys_are_sorted_as_other_languages_sort_them() -> None:
    """9 came before 10, and a process in another language that wanted both waited for the one, and was waited for."""
    client = redis.Redis()

    def sorted_keys(*keys: Any) -> list[Any]:
        return [claim.key for claim in in_order(tuple(dsync.lock(client, key) for key in keys))]

    assert sorted_keys(9, "é", b"a", 10, "z") == [10, 9, b"a", "z", "é"]
    with pytest.raises(ValueError, match="twice"):
        sorted_keys("9", 9)


def test_alarms_ring_in_order_and_not_when_cancelled() -> None:
    clock = Clock()
    rung: list[str] = []
    start = _lease.now()

    def ring(name: str) -> Callable[[], Optional[float]]:
        return lambda: rung.append(name)

    def twice() -> Optional[float]:
        rung.append("again")
        return start + 0.1 if rung.count("again") < 2 else None

    clock.at(start + 0.15, ring("late"), 2.0)
    clock.at(start + 0.01, twice, 2.0)
    clock.at(start + 0.02, ring("cancelled"), 2.0).cancel()

    def faulty() -> Optional[float]:
        raise ZeroDivisionError

    clock.at(start + 0.03, faulty, 2.0)
    eventually(lambda: "late" in rung, "the last alarm")
    eventually(lambda: rung.count("again") == 2, "the alarm that rings twice")
    assert rung[0] == "again"
    assert "cancelled" not in rung


def test_sentinel_that_refuses_is_passed_over_unless_all_do() -> None:
    """While a password was being rotated, one after the other, the first that had the new one ended each request."""

    def ask(*hosts: str) -> Any:
        refusal, own = redis.AuthenticationError("WRONGPASS"), TimeoutError("of signal.alarm")
        known = {"a": refusal, "b": redis.ConnectionError("gone"), "c": 7, "d": own}
        guides = _Guides("Sentinel", [Source(redis.Connection, {"host": host, "port": 1}) for host in hosts])

        async def send(source: Source, *_: Any) -> Any:
            reply = known[source.address[0]]
            if isinstance(reply, Exception):
                raise reply
            return reply

        return complete(guides.ask(send, ["SENTINEL", "MASTERS"], lambda _, reply: reply, _lease.now() + 9))

    assert ask("a", "b", "c") == 7
    # A refusal counts more than a connection that failed, and passes while another one may accept.
    for hosts, may_pass in (("a",), False), (("b", "a"), True):
        with pytest.raises(redis.AuthenticationError, match="the Sentinel at a:1: WRONGPASS") as raised:
            ask(*hosts)
        assert _retry.passes(raised.value) is may_pass
    with pytest.raises(redis.ConnectionError, match="the Sentinel at b:1: gone"):
        ask("b")
    with pytest.raises(TimeoutError, match=r"signal\.alarm"):
        ask("d", "c")


def test_alarms_that_are_cancelled_are_forgotten() -> None:
    """A hold with a lease of a day left its alarm behind for eight hours after its release."""
    clock = Clock()
    rung = threading.Event()

    def ring() -> Optional[float]:
        rung.set()
        return None

    start = _lease.now()
    for _ in range(1_000):
        clock.at(start + 3_600, ring, 2.0).cancel()
    kept = [clock.at(start + 3_600, ring, 2.0) for _ in range(100)]
    clock.at(start + 0.1, ring, 2.0)
    for alarm in kept[:90]:
        alarm.cancel()
        alarm.cancel()
    assert len(clock._moments) <= 20
    assert rung.wait(10)


def test_errors_of_others_are_printable() -> None:
    """The OWNER of another client went to the terminal as it was, with all that a terminal does at it."""
    holder = dsync.Holder(fence=7, owner="evil\x1b[2J\nroot@\u202edb Zoë", lease_left=1, held_for=1)
    assert "evil\\x1b[2J\\nroot@\\u202edb Zoë (fence 7" in str(dsync.NotAcquired("k", [holder]))
    assert holder.owner is not None
    assert "\n" in holder.owner
    assert "after 1 attempt; the last failure: a\\nb" in str(dsync.WorkFailed("k", "a\nb", 1))


def test_errors_are_of_one_family() -> None:
    for error in (dsync.NotAcquired, dsync.HoldLost, dsync.WorkFailed):
        assert issubclass(error, dsync.DsyncError)

"""The renewals of the holds of a client, without a server and with many holds."""

import asyncio
import threading
import time
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from servers import Cluster, Proxy, Server, closing, eventually
from story import GONE, REQUEST, Script, Story, script

from dsync import _renewals, aio, lock
from dsync._confirm import Confirm, Part
from dsync._lease import Lease
from dsync._renewals import Renewed

MANY = 300


def renewed(story: Story, lost: Callable[[str], None] = pytest.fail, lease: float = 9.0) -> Renewed:
    return Renewed(REQUEST, Lease(lease, lease / 10, story.time), None, lost)


def renewing(*holds: Renewed) -> Script:
    return script(_renewals.renew, lambda: [hold for hold in holds if hold.lease.left() > 0])


def test_lease_is_renewed_at_each_third(story: Story) -> None:
    hold = renewed(story)
    story.run(renewing(hold), (1, 0.5), (1, 0.5), stops_at=1_009.0)
    # Sent at 1003 and at 1006: a lease counts from there.
    assert hold.lease.lost_at() == 1_006.0 + 9.0 - 0.9


def test_holds_that_are_due_soon_are_renewed_together(story: Story) -> None:
    holds = [renewed(story)]
    story.time += 1
    holds.append(renewed(story))
    story.time += 1.2
    # It is due at 1005.2, more than a sixth of its lease after the first. From then on all are due together.
    holds.append(renewed(story))
    story.run(renewing(*holds), 1, 1, 1, stops_at=1_009.0)
    assert [said.count("RENEW") for said in story.said] == [2, 3, 3]


def test_renewal_without_answer_is_repeated_until_the_hold_is_lost(story: Story) -> None:
    hold = renewed(story)
    story.run(renewing(hold), *[GONE] * 200)
    assert story.time == pytest.approx(1_008.1, abs=1)
    assert hold.lease.why_lost() == "no renewal was answered in time (gone)"


def test_renewal_that_fails_is_repeated_alone(story: Story) -> None:
    holds = [renewed(story), renewed(story)]
    story.run(renewing(*holds), [GONE, 1], 1, stops_at=1_006.0)
    assert [said.count("RENEW") for said in story.said] == [2, 1]
    assert [hold.lease.lost_at() > 1_011.0 for hold in holds] == [True, True]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (0, "its lease ran out, or it was revoked or removed"),
        (redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), "WRONGTYPE"),
    ],
)
def test_renewal_that_finds_no_hold_tells_the_loss_at_once(story: Story, reply: Any, why: str) -> None:
    """SET over the key was taken for an error that passes: the loss was told when the lease was over."""
    told: list[str] = []

    def lose(why: str) -> None:
        told.append(why)
        hold.lease.end(why)

    hold = renewed(story, lose)
    story.run(renewing(hold), reply)
    assert story.time == 1_003.0
    assert len(told) == 1
    assert why in told[0]


def test_renewal_that_is_refused_is_logged_once(story: Story, caplog: Any) -> None:
    story.run(renewing(renewed(story)), *[redis.ResponseError("NOPERM")] * 200)
    assert caplog.text.count("'k' is not renewed: NOPERM") == 1


def test_replicas_get_no_longer_than_the_shortest_lease_can_wait(story: Story) -> None:
    hold = Renewed(REQUEST, Lease(9.0, 0.9, story.time), Confirm(1, 0.5), pytest.fail)
    confirm = hold.part(shortest=1.2).confirm
    assert confirm is not None
    assert confirm.within == pytest.approx(0.2)


def test_max_hold_bounds_what_renewals_ask_for(story: Story) -> None:
    """A row tells the loss."""
    hold = Renewed(REQUEST, Lease(9.0, 0.9, story.time, max_hold=14.0), None, pytest.fail)
    story.run(renewing(hold), *[1] * 4)
    assert story.said == [f"DLOCK.RENEW k t PX {lease}" for lease in (9000, 8000, 5000, 2000)]
    assert hold.lease.lost_at() == pytest.approx(1_013.1)
    assert hold.lease.why_lost() == "its max_hold of 14 s is over"
    # A margin before the server's lease ends, and at once if that is longer.
    assert Lease(9.0, 0.9, story.time, max_hold=2.0).left() == 2.0


def test_renewal_of_the_background_that_may_come_later_bounds_one_by_hand(story: Story) -> None:
    """The server goes by the last that arrives: it had the hold for 9 s, where the caller counted on 60."""
    hold = renewed(story)
    lease = hold.lease
    hold.part(9.0)
    story.time += 1
    by_hand = lease.asks(60.0, 2.0)
    lease.become(60.0, 2.0)
    lease.renewed(by_hand)
    assert lease.lost_at() == 1_000.0 + 9.0 - 0.9
    # Its answer tells no more. The background asks for the new lease at once, where it was lost without that.
    hold.hears(1)
    assert lease.lost_at() == 1_000.0 + 9.0 - 0.9
    assert hold.due_at == story.time
    hold.part(9.0)
    hold.hears(1)
    assert lease.left() == 58.0


def test_loss_is_told_where_a_shorter_lease_counts(story: Story) -> None:
    """The message was about max_hold, which there was none of, and its error kept the loss from being told."""
    hold = renewed(story)
    hold.part(9.0)
    by_hand = hold.lease.asks(60.0, 2.0)
    hold.lease.become(60.0, 2.0)
    hold.lease.renewed(by_hand)
    story.time += 9
    assert hold.lease.why_lost() == "no renewal was answered in time"


def test_lease_of_a_renewal_by_hand_counts_from_then_on(client: Any) -> None:
    hold = lock(client, "k", lease=60).acquire()
    with pytest.raises(ValueError, match="lease"):
        hold.renew(lease=0)
    assert hold.renew(lease=2)
    assert hold.left() < 2
    time.sleep(4)
    assert hold.left() > 0
    client.execute_command("DEL", "k")
    assert hold.lost.wait(5)
    assert not hold.renew(lease=60)


async def test_lease_of_a_tasks_renewal_counts_from_then_on(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    async with aio.lock(client, "k", lease=60) as hold:
        assert await hold.renew(lease=2)
        await asyncio.sleep(4)
        assert 0 < hold.left() < 2
    await client.aclose()


def test_shorter_lease_counts_without_an_answer(proxy: Proxy) -> None:
    """The server had it for two seconds, and it was called held for another twenty."""
    hold = lock(redis.Redis(port=proxy.port), "k", lease=60).acquire()
    proxy.cut_answers()
    with pytest.raises(redis.TimeoutError):
        hold.renew(lease=2)
    assert hold.lost.is_set()
    assert hold.left() == 0
    assert proxy.sent.count(b"RENEW") == 1


async def test_shorter_lease_of_a_task_counts_without_an_answer(proxy: Proxy) -> None:
    async with redis.asyncio.Redis(port=proxy.port) as client:
        hold = await aio.lock(client, "k", lease=60).acquire()
        proxy.cut_answers()
        renewing = asyncio.create_task(hold.renew(lease=2))
        await asyncio.wait_for(hold.lost.wait(), 3)
        with pytest.raises(redis.TimeoutError):
            await renewing


def test_renewal_after_one_by_hand_without_an_answer_counts(proxy: Proxy) -> None:
    hold = lock(redis.Redis(port=proxy.port), "k", lease=60).acquire()
    proxy.cut_answers()
    with pytest.raises(redis.TimeoutError):
        hold.renew(lease=20)
    assert hold.left() < 20
    proxy.mend()
    eventually(lambda: hold.left() > 20, "a renewal of the background at once")


def test_renewal_while_one_by_hand_is_out_does_not_count_for_it(story: Story) -> None:
    """It may arrive first, although it was sent later."""
    lease = Lease(60.0, 2.0, story.time)
    by_hand = lease.asks(10.0, 2.0)
    story.time += 1
    lease.renewed(lease.asks())
    assert lease.left() == 7.0
    before = lease.asks()
    story.time += 1
    lease.not_renewed(GONE, by_hand)
    assert lease.renewal_due_at() == story.time
    lease.renewed(before)
    assert lease.left() == 6.0
    lease.renewed(lease.asks())
    assert lease.left() == 58.0
    by_hand = lease.asks(10.0, 2.0)
    assert lease.left() == 8.0


def renewers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dsync-renews")]


def test_one_thread_renews_all_holds_of_a_client(server: Server) -> None:
    """It was a thread and a connection for each of them."""
    client = server.client()
    eventually(lambda: not renewers(), "no thread of another test")
    holds = [lock(client, f"k{number}", lease=60).acquire() for number in range(MANY)]
    assert not renewers()
    short = lock(client, "short", lease=1.5).acquire()
    time.sleep(2)
    assert len(renewers()) == 1
    assert short.release()
    assert all(hold.release() for hold in holds)
    eventually(lambda: not renewers(), "the end of the thread")


def writes(server: Server) -> int:
    """How often the server has read from its connections."""
    return int(server.client().info("stats")["total_reads_processed"])


def test_holds_are_renewed_in_one_write(server: Server) -> None:
    client = server.client()
    holds = [lock(client, f"k{number}", lease=6).acquire() for number in range(MANY)]
    time.sleep(3)  # They have been renewed once.
    before, renewals = writes(server), calls(server)
    time.sleep(4)
    assert calls(server) - renewals >= MANY
    assert writes(server) - before < 50
    assert all(hold.release() for hold in holds)


async def test_holds_of_tasks_are_renewed_in_one_write(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    holds = await asyncio.gather(*[aio.lock(client, f"k{number}", lease=6).acquire() for number in range(MANY)])
    await asyncio.sleep(3)
    before, renewals = writes(server), calls(server)
    tasks = len(asyncio.all_tasks())
    await asyncio.sleep(4)
    assert calls(server) - renewals >= MANY
    assert writes(server) - before < 50
    assert tasks < 5
    assert all(await asyncio.gather(*[hold.release() for hold in holds]))
    await client.aclose()


@pytest.fixture
def failing_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round of renewals fails."""
    part, rounds = Renewed.part, []

    def fail_once(hold: Renewed, shortest: float) -> Part:
        rounds.append(1)
        if len(rounds) == 1:
            raise MemoryError
        return part(hold, shortest)

    monkeypatch.setattr(Renewed, "part", fail_once)


@pytest.mark.usefixtures("failing_round")
def test_holds_of_threads_are_renewed_after_an_error_in_a_round(client: Any, caplog: Any) -> None:
    with lock(client, "k", lease=6) as hold:
        time.sleep(7)
        assert hold.left() > 0
    assert "not renewed for now" in caplog.text


@pytest.mark.usefixtures("failing_round")
async def test_holds_of_tasks_are_renewed_after_an_error_in_a_round(aclient: Any, caplog: Any) -> None:
    async with aio.lock(aclient, "k", lease=6) as hold:
        await asyncio.sleep(7)
        assert hold.left() > 0
    assert "not renewed for now" in caplog.text


def calls(server: Server) -> int:
    stats = server.client().info("commandstats")
    return sum(int(stat["calls"]) for name, stat in stats.items() if name.lower() == "cmdstat_dlock.renew")


@pytest.mark.xdist_group("cluster")
def test_holds_whose_slots_move_are_renewed_where_they_are() -> None:
    cluster = Cluster()
    with closing(cluster):  # type: ignore[arg-type]
        client = cluster.client()
        keys = [f"{{{cluster.key_on(node)}}}{number}" for node in cluster.nodes[:3] for number in range(5)]
        holds = [lock(client, key, lease=6).acquire() for key in keys]
        cluster.move(keys[0], cluster.nodes[1])
        # A node that stands still keeps nobody else from being renewed. The others would be down without its slots.
        for node in cluster.nodes:
            node.client().config_set("cluster-require-full-coverage", "no")
        cluster.nodes[2].stop()
        time.sleep(7)
        assert [hold.left() > 0 for hold in holds] == [True] * 10 + [False] * 5
        cluster.nodes[2].go_on()

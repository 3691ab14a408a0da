"""Holds that are lost, waits that are given up, and connections that break, with synchronous clients."""

import signal
import threading
import time
from typing import Any, Iterator, List

import pytest
import redis
from servers import Proxy, Server, eventually, until_waiting
from test_lock import holders, waiters

import dsync
from dsync import lock


def test_revoked_hold_is_lost_and_its_block_raises(client: Any) -> None:
    told: List[Any] = []
    with (
        pytest.raises(dsync.HoldLost, match="revoked") as lost,
        lock(client, "k", lease=1, on_lost=told.append) as hold,
    ):
        client.execute_command("DLOCK.REVOKE", "k", hold.fence)
        assert hold.lost.wait(10)
        with pytest.raises(dsync.HoldLost):
            hold.raise_if_lost()
    assert lost.value.fence == hold.fence
    eventually(lambda: told == [hold], "the callback")


def test_error_of_the_block_comes_before_the_loss(client: Any) -> None:
    with pytest.raises(ZeroDivisionError), lock(client, "k", lease=1) as hold:
        client.execute_command("DLOCK.REVOKE", "k", hold.fence)
        assert hold.lost.wait(10)
        raise ZeroDivisionError


def test_renewal_by_hand_tells_the_loss(client: Any) -> None:
    hold = lock(client, "k").acquire()
    assert hold.renew()
    client.execute_command("DLOCK.REVOKE", "k", hold.fence)
    assert not hold.renew()
    assert hold.lost.is_set()


def test_hold_is_lost_before_its_lease_ends_when_the_server_stands_still(own_server: Server) -> None:
    # The client's own time-outs are the worst: none at all.
    client = own_server.client(socket_timeout=None)
    hold = lock(client, "k", lease=3).acquire()
    own_server.stop()
    try:
        assert hold.lost.wait(20)
        with pytest.raises(dsync.HoldLost, match="no renewal was answered in time"):
            hold.raise_if_lost()
    finally:
        own_server.go_on()


def test_nobody_works_twice_while_the_server_stands_still(own_server: Server) -> None:
    """The server's clock stands still with it, so the holder's loss comes before the next grant."""
    client = own_server.client()
    events: List[str] = []
    hold = lock(client, "k", lease=2, on_lost=lambda _: events.append("lost")).acquire()

    def wait() -> None:
        with lock(client, "k"):
            events.append("next")

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: waiters(own_server.client()), "a waiter")
    own_server.stop()
    time.sleep(3)
    own_server.go_on()
    waiting.join(30)
    assert events == ["lost", "next"]
    assert not hold.release()


def test_hold_is_lost_when_the_network_is_cut(server: Server, proxy: Proxy) -> None:
    client = redis.Redis(port=proxy.port, socket_timeout=None)
    started = time.monotonic()
    with pytest.raises(dsync.HoldLost), lock(client, "k", lease=6, margin=3) as hold:
        proxy.cut()
        assert hold.lost.wait(20)
        # The server still keeps the lock for the hold: its lease ends after the caller was told.
        assert holders(server.client(), "k") == 1
    # The end of the block does not wait for a server that is out of reach for longer than it is worth.
    assert time.monotonic() - started < 15


def test_hold_survives_a_cut_that_is_shorter_than_its_lease(server: Server, proxy: Proxy) -> None:
    client = redis.Redis(port=proxy.port, socket_timeout=None)
    with lock(client, "k", lease=9) as hold:
        proxy.cut()
        time.sleep(3.5)
        proxy.mend()
        renewed_at = hold._lease.lost_at()
        eventually(lambda: hold._lease.lost_at() > renewed_at, "a renewal over a new connection")
        hold.raise_if_lost()


def test_waiter_survives_a_cut_network(server: Server, proxy: Proxy, monkeypatch: Any) -> None:
    monkeypatch.setattr("dsync._steps.LONGEST_BLOCK", 1.0)
    monkeypatch.setattr("dsync._sync._talk.ANSWER_WITHIN", 1.0)
    held = lock(server.client(), "k").acquire()
    granted = threading.Event()

    def wait() -> None:
        with lock(redis.Redis(port=proxy.port), "k"):
            granted.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: waiters(server.client()), "a waiter")
    proxy.cut()
    time.sleep(2)
    proxy.mend()
    held.release()
    assert granted.wait(30)
    waiting.join()


def test_waiter_survives_the_restart_of_the_server(own_server: Server, own_connection: bool) -> None:
    held = lock(own_server.client(), "k", lease=2).acquire()
    granted = threading.Event()

    def wait() -> None:
        with lock(own_server.client(), "k", own_connection=own_connection):
            granted.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: waiters(own_server.client()), "a waiter")
    own_server.kill()
    own_server.start()
    assert granted.wait(30)
    waiting.join()
    # The server kept nothing on its disk, so the first hold is gone.
    assert not held.release()


def test_waiter_survives_client_unblock_and_kill(client: Any) -> None:
    held = lock(client, "k").acquire()
    waiting = threading.Thread(target=lambda: lock(client, "k").acquire().release())
    waiting.start()
    for command in ("UNBLOCK {} ERROR", "KILL ID {}"):
        blocked = eventually(
            lambda: [row["id"] for row in client.client_list() if "b" in row["flags"]],
            "a blocked client",
        )
        client.execute_command("CLIENT", *command.format(blocked[0]).split())
        eventually(lambda: waiters(client), "the waiter again")
    held.release()
    waiting.join(30)
    assert not waiting.is_alive()


def test_wait_that_runs_out_leaves_nothing_behind(client: Any, own_connection: bool) -> None:
    with lock(client, "k"):
        with pytest.raises(dsync.NotAcquired):
            lock(client, "k", wait=0.3, own_connection=own_connection).acquire()
        assert waiters(client) == 0


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's reaction to Ctrl-C, which it leaves out where its caller ignores the signal: in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_wait_leaves_nothing_behind(client: Any, own_connection: bool) -> None:
    def interrupt() -> None:
        eventually(lambda: waiters(client), "a waiter")
        # Lets the wait begin on its connection, where the signal finds it.
        time.sleep(0.3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with lock(client, "k"):
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            lock(client, "k", wait=60, own_connection=own_connection).acquire()
        assert waiters(client) == 0
    assert holders(client, "k") == 0


def test_server_out_of_reach_raises_the_error_of_the_client(own_server: Server) -> None:
    own_server.kill()
    client = own_server.client()
    for claim in (lock(client, "k", wait=0), lock(client, "k", wait=0.3), lock(client, "k", retry_for=0.3)):
        with pytest.raises(redis.ConnectionError):
            claim.acquire()


def test_release_that_finds_no_server_is_no_error_of_the_block(own_server: Server, caplog: Any) -> None:
    with lock(own_server.client(), "k", lease=2):
        own_server.kill()
    assert "could not be released" in caplog.text


def test_wrong_password_is_not_asked_for_again(own_server: Server) -> None:
    client = own_server.client(password="wrong")
    own_server.client().config_set("requirepass", "right")
    started = time.monotonic()
    with pytest.raises((redis.AuthenticationError, redis.ResponseError)):
        lock(client, "k").acquire()
    assert time.monotonic() - started < 20


def test_announcements_are_heard_again_after_their_connection_broke(server: Server) -> None:
    client = server.client()
    first = lock(client, "k").acquire()
    served: List[int] = []

    def work(number: int) -> None:
        with lock(client, "k", own_connection=False):
            served.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for number, thread in enumerate(threads):
        thread.start()
        until_waiting(lambda: waiters(client), number + 1)
    listeners = eventually(lambda: subscribers(client), "a subscriber")
    for listener in listeners:
        client.client_kill_filter(_id=listener)
    eventually(lambda: set(subscribers(client)) - set(listeners), "a new subscriber")
    first.release()
    for thread in threads:
        thread.join(30)
    assert served == [0, 1, 2]


def subscribers(client: Any) -> List[str]:
    return [row["id"] for row in client.client_list(_type="pubsub")]

"""Holds that are lost, waits that are given up, and connections that break, with synchronous clients."""

import gc
import signal
import threading
import time
from typing import Any, Callable, Iterator, Optional

import pytest
import redis
from servers import Proxy, Server, eventually, until_waiting
from test_lock import holders, waiters

import dsync
from dsync import all_of, lock
from dsync._sync._alarm import Clock
from dsync._sync._threads import Threads, complete


def test_revoked_hold_is_lost_and_its_block_raises(client: Any) -> None:
    told: list[Any] = []
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


@pytest.mark.parametrize("command", ["DEL {}", "DLOCK.REVOKE {} {}", "SET {} value"])
def test_block_whose_hold_was_gone_raises(client: Any, command: str) -> None:
    """Another had held meanwhile: the server said so in its answer to the release, and the block ended in silence."""
    with pytest.raises(dsync.HoldLost, match="revoked or removed"), lock(client, "k", lease=30) as hold:
        client.execute_command(*command.format("k", hold.fence).split())


def test_release_whose_answer_was_lost_is_no_loss(server: Server, proxy: Proxy) -> None:
    """The first request has ended the hold, but only the second is answered: with 0, which says nothing then."""
    with lock(redis.Redis(port=proxy.port), "k", lease=30):
        proxy.cut_answers()
        threading.Timer(0.5, proxy.mend).start()
    assert holders(server.client(), "k") == 0


def test_renewal_by_hand_that_finds_another_type_tells_the_loss(client: Any) -> None:
    hold = lock(client, "k").acquire()
    client.set("k", "value")
    assert not hold.renew()
    assert hold.lost.is_set()


def test_several_keys_are_not_entered_when_the_first_is_lost_meanwhile(client: Any) -> None:
    """The hold of the first key was lost while the second was waited for, and the block began nevertheless."""
    blocker = lock(client, "b").acquire()
    entered = []

    def lose_the_first() -> None:
        eventually(lambda: waiters(client), "a waiter")
        client.delete("a")
        time.sleep(1)
        blocker.release()

    losing = threading.Thread(target=lose_the_first)
    losing.start()
    with pytest.raises(dsync.HoldLost), all_of(lock(client, "a", lease=1), lock(client, "b", lease=1)):
        entered.append(True)
    losing.join()
    assert not entered
    assert holders(client, "b") == 0


def test_loss_by_a_suspension_is_told_when_the_machine_goes_on(client: Any, suspend: Callable[[float], None]) -> None:
    """The wait for the end of the lease stood still with the machine: the loss was told 19 s after it went on."""
    hold = lock(client, "k", lease=60).acquire()
    # Lets the clock's thread begin its wait.
    time.sleep(0.2)
    suspend(120)
    assert hold.left() == 0
    assert hold.lost.wait(10)


def test_suspension_that_is_shorter_than_the_lease_is_followed_by_a_renewal(
    client: Any, suspend: Callable[[float], None]
) -> None:
    with lock(client, "k", lease=60) as hold:
        suspend(25)
        before = hold._lease.lost_at()
        eventually(lambda: hold._lease.lost_at() > before, "the first renewal")
        suspend(35)
        before = hold._lease.lost_at()
        eventually(lambda: hold._lease.lost_at() > before, "the next renewal", within=10)


def test_block_without_a_name_for_its_hold_keeps_it(client: Any) -> None:
    with lock(client, "k", lease=1):
        time.sleep(2)
        assert holders(client, "k") == 1


def test_loss_is_told_to_who_keeps_only_what_tells_it(client: Any) -> None:
    """The usual election of a leader: the hold was collected, its renewal ended, and two led."""
    told: list[Any] = []
    lost = lock(client, "k", lease=2, on_lost=told.append).acquire().lost
    hold = lock(client, "k").acquire()
    assert lost.is_set()
    eventually(lambda: [one.fence < hold.fence for one in told] == [True], "the callback")


class Leader:
    """Its hold and its callback refer to each other."""

    def __init__(self, client: Any, told: list[str]) -> None:
        self._told = told
        self._hold = lock(client, "k", lease=2, on_lost=self._stop).acquire()

    def _stop(self, hold: Any) -> None:
        self._told.append(str(hold._lease.why_lost()))


def test_callback_that_refers_to_its_hold_does_not_have_it_renewed(client: Any) -> None:
    told: list[str] = []
    Leader(client, told)
    gc.collect()
    lock(client, "k").acquire()
    eventually(lambda: told == ["nobody refers to it any more, so it was not renewed"], "the callback")


@pytest.fixture
def no_threads(monkeypatch: Any) -> list[str]:
    """The names of the threads that cannot be started, as with too many of them."""
    start = threading.Thread.start
    refused: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if any(thread.name.startswith(name) for name in refused):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refused


def test_loss_is_told_when_no_thread_can_renew(client: Any, no_threads: list[str], caplog: Any) -> None:
    """The error ended the watch over the lease as well: the hold was gone, and its loss never told."""
    no_threads += ["dsync-renews", "dsync-on-lost"]
    hold = lock(client, "k", lease=1, on_lost=print).acquire()
    assert hold.lost.wait(20)
    eventually(lambda: "could not be called" in caplog.text, "the callback is tried")
    with pytest.raises(dsync.HoldLost, match="can't start new thread"):
        hold.raise_if_lost()


def test_hold_is_renewed_by_a_thread_that_starts_at_last(client: Any, no_threads: list[str]) -> None:
    no_threads.append("dsync-renews")
    with lock(client, "k", lease=4) as hold:
        time.sleep(1.6)
        no_threads.clear()
        time.sleep(3)
        hold.raise_if_lost()


def test_hold_that_nobody_can_watch_is_given_back(
    client: Any, no_threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("dsync._sync._hold.CLOCK", clock)
    no_threads.append("dsync-leases")
    with pytest.raises(RuntimeError, match="new thread"):
        lock(client, "k").acquire()
    assert holders(client, "k") == 0
    no_threads.clear()
    with lock(client, "k", lease=1) as hold:
        time.sleep(1.5)
        hold.raise_if_lost()


def test_refused_release_hides_neither_the_loss_nor_the_error_of_the_block(own_server: Server, caplog: Any) -> None:
    client = own_server.client()

    def block(error: Optional[Exception], *command: Any) -> None:
        with lock(client, "k", lease=1) as hold:
            client.execute_command(*command)
            if error is not None:
                raise error
            hold.lost.wait(20)

    refuse, allow = ("ACL", "SETUSER", "default", "-dlock.release"), ("ACL", "SETUSER", "default", "+dlock.release")
    with pytest.raises(ZeroDivisionError):
        block(ZeroDivisionError(), *refuse)
    assert "could not be released" in caplog.text
    client.execute_command(*allow)
    client.delete("k")
    with pytest.raises(dsync.HoldLost):
        block(None, "ACL", "SETUSER", "default", "-dlock.release", "-dlock.renew")
    client.execute_command(*allow, "+dlock.renew")
    with pytest.raises(redis.ResponseError, match="permission"), lock(client, "k"):
        client.execute_command(*refuse)


def test_callback_of_asyncio_is_refused(client: Any) -> None:
    async def tell(_: Any) -> None: ...

    with pytest.raises(TypeError, match=r"dsync\.aio"):
        lock(client, "k", on_lost=tell)


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


def test_nobody_works_twice_while_the_server_stands_still(own_server: Server) -> None:
    """The server's clock stands still with it, so the holder's loss comes before the next grant."""
    client = own_server.client()
    events: list[str] = []
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


def test_waiter_survives_a_cut_network(server: Server, proxy: Proxy) -> None:
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


@pytest.mark.parametrize("held", [True, False], ids=["waiting", "out of reach"])
def test_time_out_of_the_programs_own_ends_a_wait(own_server: Server, own_connection: bool, held: bool) -> None:
    """Its name, and the library that waits in recv, had it taken for a time-out of the connection, which passes."""

    def ring(*_: Any) -> None:
        raise TimeoutError("the program's own")

    client = own_server.client()
    lock(own_server.client(), "k").acquire()
    if not held:
        own_server.kill()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(TimeoutError, match="the program's own"):
            lock(client, "k", wait=20, own_connection=own_connection).acquire()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
    served: list[int] = []

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


def subscribers(client: Any) -> list[str]:
    return [row["id"] for row in client.client_list(_type="pubsub")]


def test_subscription_that_is_not_confirmed_ends_its_connection(own_server: Server) -> None:
    """The connection to a server that stood still was kept, and the next ones subscribed there, too."""
    client = own_server.client()
    threads = Threads.of(client)
    source = complete(threads.find("k", 5))
    first = complete(threads.watch(source, b"a"))
    unheard = threads._listeners[source.name]
    own_server.stop()
    with pytest.raises(redis.TimeoutError):
        complete(threads.watch(source, b"b"))
    own_server.go_on()
    complete(complete(threads.watch(source, b"b")).end())
    assert threads._listeners[source.name] is not unheard
    with pytest.raises(redis.ConnectionError, match="not heard"):
        complete(first.wait(30))
    complete(first.end())

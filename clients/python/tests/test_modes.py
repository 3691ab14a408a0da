"""Every way to use the package that the README promises: two libraries, threads and asyncio, one server and many."""

import contextlib
import functools
import threading
from typing import Any, Iterator

import pytest
from modes import Mode, Queue, User, modes
from servers import Server, eventually, until_waiting
from test_lock import holders, waiters

import dsync


@contextlib.contextmanager
def started(mode: Mode) -> Iterator[Any]:
    """Yields the servers, and a client of theirs."""
    with contextlib.ExitStack() as stack:
        servers = mode.start()
        stack.callback(servers.close)
        user = User(mode, servers)
        stack.callback(user.close)
        yield servers, user


def queue_up(user: User, key: str, primary: Server) -> Queue:
    """Has four wait for a key, two of them on no connection."""
    queue = Queue()
    for number in range(4):
        queue.add(user, user.lock(key, own_connection=number % 2 == 0))
        until_waiting(lambda: waiters(primary.client()), number + 1)
    return queue


@modes("one", "sentinel", "cluster")
def test_all_four_families_are_served(mode: Mode) -> None:
    """140 of 140 locks of valkey-py's synchronous cluster ended with an AttributeError: no test had that mode."""
    with started(mode) as (servers, user):
        for key in ("a", "b", "c", "d"):
            with user.block(user.lock(key, owner="web-1")) as hold:
                assert hold.fence > 0
                assert user.do(hold.renew())
                for wait in (0, 0.3):
                    with pytest.raises(dsync.NotAcquired, match="web-1"):
                        user.do(user.lock(key, wait=wait, own_connection=bool(wait)).acquire())
                queue = queue_up(user, key, servers.primary_of(key))
            queue.join()
            assert queue.served == [0, 1, 2, 3]

        first = user.do(user.semaphore("s", limit=1).acquire())
        queue = Queue()
        queue.add(user, user.semaphore("s", limit=1))
        until_waiting(lambda: waiters(servers.primary_of("s").client()), 1)
        user.do(first.release())
        queue.join()

        batch = user.group("g")
        assert user.do(batch.expect(2)) == 2
        for _ in range(2):
            with user.block(batch.member()):
                pass
        assert user.do(batch.wait(timeout=30)) == (2, 0)

        with user.block(user.begin("w")) as run:
            run.result = b"done"
        with user.block(user.begin("w")) as again:
            assert (again.is_done, again.result) == (True, b"done")


@modes("one")
def test_release_is_repeated_while_the_server_can_know_the_hold(mode: Mode) -> None:
    """It was given up after five seconds: whoever came next waited for another lease of the promoted server."""
    with started(mode) as (server, user):
        hold = user.do(user.lock("k", lease=30).acquire())
        server.stop()
        threading.Timer(13, server.go_on).start()
        user.do(hold.release())
        assert holders(server.client(), "k") == 0


@modes("sentinel", "cluster")
@pytest.mark.parametrize("trouble", ["switch", "freeze"])
def test_hold_and_queue_survive_another_primary(mode: Mode, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planned switch cost those who wait without a connection 5.0 to 6.7 s: nobody heard that the server had left.

    Nobody asks again by himself here, so that only what is heard can tell.
    """
    monkeypatch.setattr("dsync._steps.ASK_AGAIN_AFTER", 50.0 if trouble == "switch" else 2.0)
    monkeypatch.setattr("dsync._steps.PLACE_KEPT_FOR", 60.0)
    with started(mode) as (servers, user):
        key = servers.key_on(servers.nodes[0]) if mode.topology == "cluster" else "k"
        with user.block(user.lock(key, lease=20, margin=0)) as hold:
            queue = queue_up(user, key, servers.primary_of(key))
            new = getattr(servers, trouble)(key)
            before = hold._lease.lost_at()
            eventually(lambda: hold._lease.lost_at() > before, "a renewal by the new primary")
            hold.raise_if_lost()
        queue.join(40)
        assert queue.served == [0, 1, 2, 3]
        assert waiters(new.client()) == 0


@modes("cluster")
def test_hold_and_queue_move_with_their_slot(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its waiters were told by SUNSUBSCRIBE, which nobody heard."""
    monkeypatch.setattr("dsync._steps.ASK_AGAIN_AFTER", 50.0)
    monkeypatch.setattr("dsync._steps.PLACE_KEPT_FOR", 60.0)
    with started(mode) as (servers, user):
        source, target = servers.nodes[1], servers.nodes[2]
        key = servers.key_on(source)
        with user.block(user.lock(key, lease=6)) as hold:
            queue = queue_up(user, key, source)
            servers.move(key, target)
            before = hold._lease.lost_at()
            eventually(lambda: hold._lease.lost_at() > before, "a renewal by the new node")
            eventually(lambda: waiters(target.client()) == 4, "the waiters at the new node")
            hold.raise_if_lost()
        queue.join(40)
        assert queue.served == [0, 1, 2, 3]


@modes("cluster")
def test_key_is_served_by_the_node_that_its_slot_moves_to(mode: Mode) -> None:
    """While a slot moves key by key, a key that the owner has not is asked for at the target, with ASKING."""
    with started(mode) as (servers, user):
        source, target = servers.nodes[1], servers.nodes[2]
        key = servers.key_on(source)
        assert user.do(user.do(user.lock(key).acquire()).release())
        servers.begin_to_move(key, target)
        with user.block(user.lock(key)) as hold:
            assert user.do(hold.renew())
            with pytest.raises(dsync.NotAcquired):
                user.do(user.lock(key, wait=0).acquire())
            assert target.client().execute_command("DSYNC.HOLDS", 0, "COUNT", 100)[1] != []
        assert target.client().execute_command("DSYNC.HOLDS", 0, "COUNT", 100)[1] == []


@modes("cluster")
def test_no_error_comes_through_and_no_hold_is_left_over_a_failover(mode: Mode) -> None:
    """The client closed the connections of other tasks under their commands, and its errors were none that pass."""
    over = threading.Event()
    errors: list[BaseException] = []
    count = 0

    def work(number: int) -> None:
        nonlocal count
        try:
            while not over.is_set():
                with user.block(user.lock(f"{{{key}}}:{number}", own_connection=number % 2 == 0)):
                    count += 1
        except BaseException as error:
            errors.append(error)

    def done(aim: int) -> bool:
        return bool(errors) or count >= aim

    with started(mode) as (servers, user):
        key = servers.key_on(servers.nodes[0])
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(12)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                servers.switch(key)
                aim = count + 100
                eventually(functools.partial(done, aim), "work after the failover")
                servers.nodes[0], servers.replica = servers.replica, servers.nodes[0]
                eventually(lambda: servers.replica.client().info("replication")["role"] == "slave", "a replica")
        finally:
            over.set()
        for thread in threads:
            thread.join(60)
        assert not errors
        assert servers.nodes[0].client().execute_command("DSYNC.HOLDS", 0, "COUNT", 100)[1] == []

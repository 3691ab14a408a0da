"""Rows of refusals: who is not let in by a server or a Sentinel, and whose certificate the client does not trust."""

from __future__ import annotations

import re
import time
from typing import Callable

from servers import SOON

from driver import Driver, NotConnected
from guarded import CLIENT, GROUP, WORKER, Certificate
from lab import Lab
from rows import Cannot, hold, is_, is_recorded, row
from rows_of_failovers import hold_outlives, killed

#: What is refused at once is told within so many seconds on a busy machine; what passes would be asked again for 30.
AT_ONCE = 20.0
#: How long a password is half-way through its rotation, or a certificate is a wrong one.
FOR_A_WHILE = 1.5

#: What stands in the text of a refused password: redis-py leaves the first word out, redis-rs says it in its own words.
A_PASSWORD = "WRONGPASS|invalid username-password pair|password authentication failed"
A_CERTIFICATE = "certificate"

#: Libraries that do not tell who it was behind Sentinel: go-redis names no address, and redigo's helper keeps only the
#: server's words of what a dial function returns.
NAMELESS = {"go-redis", "redigo"}

WRONG = "password-of-nobody"


def refused_text(lab: Lab, driver: Driver) -> str:
    """Asks for a lock, and returns the error, which has to come at once and to tell no secret."""
    begun = time.monotonic()
    words = {"family": "lock", "key": "k", "lease": 30_000, "wait": None, "as": "refused"}
    answer = driver.ask("acquire", within=120, **words)
    took = time.monotonic() - begun
    text = is_(answer, "error")["text"]
    assert took < AT_ONCE, f"a refusal was told after {took:.1f} s: {text}"
    return without_secrets(text)


def refused_connection(lab: Lab, mode: str, ports: list[int], **login: str) -> str:
    """The same of a client that has never been let in."""
    try:
        driver = lab.another(mode, ports, **login)
    except NotConnected as refused:
        raise Cannot(f"the library connects before its client is given away, and says: {refused}") from None
    return refused_text(lab, driver)


def without_secrets(text: str) -> str:
    assert "password-of" not in text, f"a password in {text}"
    assert not re.search(r"[0-9a-f]{8}-?[0-9a-f]{4}", text), f"a token in {text}"
    return text


def names(text: str, place: str, refusal: str, lab: Lab) -> None:
    """The error names who has refused, and how."""
    assert re.search(place, text, re.I) or NAMELESS & set(lab.command), f"{place} expected: {text}"
    assert re.search(refusal, text, re.I), f"{refusal} expected: {text}"


def names_primary(text: str, lab: Lab, refusal: str) -> None:
    names(text, f":{lab.group.primary.port}", refusal, lab)
    assert not re.search("sentinel (at )?127.0.0.1:[0-9]+: ", text, re.I), text


def names_sentinel(text: str, lab: Lab, refusal: str) -> None:
    asked = next((sentinel.port for sentinel in lab.group.sentinels if f":{sentinel.port}" in text), None)
    names(text, f"sentinel (at )?127.0.0.1:{asked}", refusal, lab)


def acquires(lab: Lab) -> None:
    """A new request goes through, over connections that are looked up afresh."""
    lab.server.close_connections()
    words = {"family": "lock", "key": "other", "lease": 30_000, "wait": 10_000}
    is_(lab.driver.ask("acquire", **{"as": "other"}, **words), "held")
    is_(lab.driver.ask("release", **{"as": "other"}), "released")


@row("passwords", "tls")
def hold_outlives_the_primary_of_a_guarded_group(lab: Lab) -> None:
    for sentinel in lab.group.sentinels:
        sentinel.client().execute_command("SENTINEL", "SET", GROUP, "down-after-milliseconds", 1_000)
    hold_outlives(killed)(lab)


# Passwords.


def rotate(lab: Lab, password: str) -> None:
    """All Sentinels have another password, and everybody has to ask them again."""
    for sentinel in lab.group.sentinels:
        sentinel.set_password(CLIENT, password)
    lab.server.close_connections()


def half_rotated(lab: Lab) -> None:
    rotate(lab, WRONG)
    time.sleep(FOR_A_WHILE)
    rotate(lab, CLIENT.password)


@row("passwords")
def sentinel_that_refuses_is_passed_over(lab: Lab) -> None:
    """As in a rolling rotation."""
    hold(lab, lease=12_000)
    for sentinel in lab.group.sentinels:
        sentinel.set_password(CLIENT, WRONG)
        acquires(lab)
        sentinel.set_password(CLIENT, CLIENT.password)
    is_(lab.driver.ask("until_lost", ms=13_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")


@row("passwords")
def refusal_of_all_sentinels_is_told_at_once(lab: Lab) -> None:
    rotate(lab, WRONG)
    text = refused_text(lab, lab.driver)
    names_sentinel(text, lab, A_PASSWORD)


@row("passwords")
def refusal_of_all_sentinels_from_the_start_is_told_at_once(lab: Lab) -> None:
    login = {**lab.group.login(), "sentinel_password": WRONG}
    text = refused_connection(lab, "sentinel", lab.group.ports(), **login)
    names_sentinel(text, lab, A_PASSWORD)


@row("passwords")
def refusal_by_the_primary_names_it_and_no_sentinel(lab: Lab) -> None:
    lab.group.primary.set_password(WORKER, WRONG)
    text = refused_text(lab, lab.driver)
    names_primary(text, lab, A_PASSWORD)


@row("passwords")
def hold_is_renewed_while_all_sentinels_refuse(lab: Lab) -> None:
    is_renewed_over(lab, half_rotated)


@row("passwords")
def ends_are_told_while_all_sentinels_refuse(lab: Lab) -> None:
    ended_over(lab, half_rotated)


def is_renewed_over(lab: Lab, fault: Callable[[Lab], None]) -> None:
    """A hold outlives its lease, although this happens meanwhile."""
    hold(lab, lease=12_000)
    fault(lab)
    is_(lab.driver.ask("until_lost", ms=13_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")


def ended_over(lab: Lab, fault: Callable[[Lab], None]) -> None:
    """A lock is released, and work told done, while this goes on."""
    hold(lab, lease=20_000)
    words = {"family": "once", "key": "job", "lease": 20_000, "wait": None}
    is_(lab.driver.ask("acquire", **{"as": "run"}, **words), "held")
    lab.server.close_connections()
    ending = lab.aside(lambda: fault(lab))
    time.sleep(FOR_A_WHILE / 3)
    released = lab.driver.begin("release", **{"as": "h"})
    done = lab.driver.begin("done", result="r", **{"as": "run"})
    is_(released.result(timeout=SOON), "released")
    is_recorded(done, lab, "job")
    ending.result(timeout=SOON)
    assert lab.ask("DLOCK.INFO", "k") is None


def one_refuses_and_the_other_is_away(lab: Lab) -> None:
    first, second = lab.group.sentinels
    first.set_password(CLIENT, WRONG)
    second.kill()
    lab.server.close_connections()


@row("passwords")
def refusal_is_told_when_the_other_sentinel_stays_away(lab: Lab) -> None:
    one_refuses_and_the_other_is_away(lab)
    # `dsync run` asks until its wait is over, if that is shorter than a minute.
    words = {"family": "lock", "key": "k", "lease": 30_000, "retry_for": 6_000, "wait": 15_000}
    answer = lab.driver.begin("acquire", **{"as": "refused"}, **words)
    time.sleep(2)
    assert not answer.done(), f"the other Sentinel might have come back: {answer.result()}"
    text = without_secrets(is_(answer.result(timeout=SOON), "error")["text"])
    names_sentinel(text, lab, A_PASSWORD)


@row("passwords")
def request_goes_on_when_the_other_sentinel_comes_back(lab: Lab) -> None:
    one_refuses_and_the_other_is_away(lab)
    answer = lab.driver.begin("acquire", family="lock", key="k", lease=30_000, wait=None, **{"as": "h"})
    time.sleep(FOR_A_WHILE)
    lab.group.sentinels[1].start()
    is_(answer.result(timeout=SOON), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")


# Certificates.


def of_another_authority(lab: Lab) -> Certificate:
    return lab.group.authorities[1].certificate()


def that_has_expired(lab: Lab) -> Certificate:
    return lab.group.authorities[0].certificate(ends="20211231")


def for_another_name(lab: Lab) -> Certificate:
    return lab.group.authorities[0].certificate(names="DNS:other.example,IP:192.0.2.1")


def certificate_is_refused_at_once(wrong: Callable[[Lab], Certificate]) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        lab.group.primary.show(wrong(lab))
        # Sentinels, too, refuse one that has expired, and node-redis tries no primary that they do not reach.
        is_untried = wrong is that_has_expired and {"node", "redis"} <= set(lab.command)
        if not is_untried:
            names_primary(refused_text(lab, lab.driver), lab, A_CERTIFICATE)
        text = refused_connection(lab, "one", [lab.group.primary.port], **lab.group.login())
        names_primary(text, lab, A_CERTIFICATE)
        if is_untried:
            raise Cannot("the library tries no primary that its Sentinels do not reach, so it sees no certificate")

    play.__name__ = f"certificate_{wrong.__name__}_is_refused_at_once"
    return play


def holds_go_on_over_a_certificate(wrong: Callable[[Lab], Certificate]) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        certificate = wrong(lab)

        def shown_for_a_while(lab: Lab) -> None:
            lab.group.primary.show(certificate)
            time.sleep(FOR_A_WHILE)
            lab.group.primary.show(lab.group.certificate)

        is_renewed_over(lab, shown_for_a_while)
        ended_over(lab, shown_for_a_while)

    play.__name__ = f"holds_go_on_over_a_certificate_{wrong.__name__}"
    return play


for wrong in (of_another_authority, that_has_expired, for_another_name):
    row("tls")(certificate_is_refused_at_once(wrong))
row("tls")(holds_go_on_over_a_certificate(of_another_authority))


@row("tls")
def sentinel_whose_certificate_is_not_trusted_is_passed_over(lab: Lab) -> None:
    for sentinel in lab.group.sentinels:
        sentinel.start_with(of_another_authority(lab))
        acquires(lab)
        sentinel.start_with(lab.group.certificate)


@row("tls")
def certificates_of_all_sentinels_are_refused_at_once(lab: Lab) -> None:
    for sentinel in lab.group.sentinels:
        sentinel.start_with(of_another_authority(lab))
    text = refused_connection(lab, "sentinel", lab.group.ports(), **lab.group.login())
    names_sentinel(text, lab, A_CERTIFICATE)

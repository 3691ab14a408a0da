"""Runs redis-cli sessions and compares each reply with the one on the page.

`> ` or `A> ` begins a request, and the lines below are its reply as redis-cli shows it. A request without a reply waits:
what it is answered stands further down, after `B: `. Two or more blanks and `# ` begin a remark; a line `...` stands for
any lines; alone, for any reply but an error, null and 0. With RESP3, `-> ` is a message that no request asked for.

Numbers that differ from run to run are compared like this: fences (15 digits or more) may be others, as long as equal ones
are equal and greater ones greater; of other numbers from 1000 on, which are milliseconds, 10 seconds more or less will do.
"""

import re
import shlex
import socket
import time

_REQUEST = re.compile(r"^(?P<who>[A-Z]?)> (?P<command>.+)$")
_LATE_REPLY = re.compile(r"^(?P<who>[A-Z]): (?P<first>.*)$")
_REMARK = re.compile(r"(^|\s{2,})# .*$")
_NUMBER = re.compile(r"\d+")
_FENCE_DIGITS = 15
_TOLERANCE_MS = 10_000
_SOON = 10


class Connection:
    """A connection that shows replies as redis-cli does, in RESP2 or, after HELLO 3, in RESP3."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SOON)
        self._file = self._socket.makefile("rb")

    def send(self, words: list[str]) -> None:
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts.append(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()))
        self._socket.sendall(b"".join(parts))

    def ask(self, *words: str) -> str:
        self.send(list(words))
        return self.reply()

    def reply(self, indent: int = 0) -> str:
        """Returns the next reply as redis-cli shows it; its lines but the first are indented."""
        line = self._file.readline().decode().rstrip("\r\n")
        kind, rest = line[:1], line[1:]
        if kind == "+":
            return rest
        if kind == "-":
            return f"(error) {rest}"
        if kind == ":":
            return f"(integer) {rest}"
        if rest == "-1":
            return "(nil)"
        if kind == "$":
            text = self._file.read(int(rest) + 2)[:-2].decode()
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n") + '"'
        if kind == "_":
            return "(nil)"
        count = int(rest)
        width = len(str(count))
        if kind == ">":
            what, names = self.reply(), self.reply()
            return f"-> {what[1:-1]}: {names[3:]}"
        if kind == "%":
            pairs = [f"{n:>{width}}# {self.reply()} => {self.reply(indent + width + 2)}" for n in range(1, count + 1)]
            return ("\n" + " " * indent).join(pairs)
        assert kind == "*", line
        items = [f"{n:>{width}}) {self.reply(indent + width + 2)}" for n in range(1, count + 1)]
        return ("\n" + " " * indent).join(items) or "(empty array)"

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Mismatch(Exception):
    """The server replies something else than the page says."""


class _Fences:
    """Which fence of the server stands for which on the page."""

    def __init__(self) -> None:
        self.real: dict[str, str] = {}

    def equal(self, shown: str, real: str) -> bool:
        if len(shown) >= _FENCE_DIGITS <= len(real):
            known = self.real.setdefault(shown, real)
            ordered = [int(self.real[fence]) for fence in sorted(self.real, key=int)]
            return known == real and ordered == sorted(set(ordered))
        if len(shown) < 4:
            return shown == real
        return abs(int(shown) - int(real)) <= _TOLERANCE_MS

    def in_request(self, command: str) -> str:
        return _NUMBER.sub(lambda number: self.real.get(number[0], number[0]), command)


def run(session: str, port: int) -> None:
    """Sends the requests of a session. Raises Mismatch at the first reply that is another one."""
    connections: dict[str, Connection] = {}
    fences = _Fences()
    waiting: set[str] = set()
    admin = Connection(port)
    try:
        for who, command, expected in _steps(session):
            if who not in connections:
                connections[who] = Connection(port)
            connection = connections[who]
            if command is not None:
                connection.send(shlex.split(fences.in_request(command)))
            if expected:
                _compare(expected, connection.reply().split("\n"), fences)
                waiting.discard(who)
            else:
                waiting.add(who)
                _wait_until_blocked(admin, len(waiting), f"{who}> {command}")
    finally:
        admin.close()
        for connection in connections.values():
            connection.close()


def _steps(session: str) -> list[tuple[str, str | None, list[str]]]:
    """Returns who sends what and the reply that follows: no command for a late reply, no reply for one that waits."""
    steps: list[tuple[str, str | None, list[str]]] = []
    for raw in session.splitlines():
        line = _REMARK.sub("", raw).rstrip()
        if request := _REQUEST.match(line):
            steps.append((request["who"], request["command"], []))
        elif late := _LATE_REPLY.match(line):
            steps.append((late["who"], None, [late["first"]]))
        elif line:
            who, command, expected = steps[-1]
            expected.append(line if command is not None else line[3:])
    return steps


def _wait_until_blocked(admin: Connection, clients: int, request: str) -> None:
    deadline = time.monotonic() + _SOON
    while f"blocked_clients:{clients}\\r" not in admin.ask("INFO", "clients"):
        if time.monotonic() > deadline:
            raise Mismatch(f"{request} does not wait")
        time.sleep(0.01)


def _compare(expected: list[str], real: list[str], fences: _Fences) -> None:
    if expected == ["..."] and (real[0] in ("(nil)", "(integer) 0") or real[0].startswith("(error)")):
        raise Mismatch("the server answers:\n" + "\n".join(real))
    at = 0
    may_skip = False
    for line in expected:
        if line.strip() == "...":
            may_skip = True
            continue
        while at < len(real) and may_skip and not _fits(line, real[at], fences):
            at += 1
        if at == len(real) or not _fits(line, real[at], fences):
            raise Mismatch("the page says\n" + "\n".join(expected) + "\nbut the server\n" + "\n".join(real))
        may_skip = False
        at += 1
    if at < len(real) and not may_skip:
        raise Mismatch("the page ends before\n" + "\n".join(real[at:]))


def _fits(shown: str, real: str, fences: _Fences) -> bool:
    if _NUMBER.split(shown) != _NUMBER.split(real):
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(real))
    return all(fences.equal(*pair) for pair in pairs)

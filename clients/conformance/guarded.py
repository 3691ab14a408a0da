"""A group behind Sentinels where everybody logs in, each with the least that its job needs, and over TLS if wanted."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Optional

from servers import Server, eventually, until_in_sync

#: The name of the group, and that of all hosts.
GROUP, HOST = "locks", "localhost"
#: The names in a certificate that clients look for.
NAMES = f"DNS:{HOST},IP:127.0.0.1"
DOCS = Path(__file__).parents[2] / "docs"
#: What is typed in each language, and the lines of servers and Sentinels.
PAGE = (DOCS / "sentinel-clients.md").read_text()
ACL_PAGE = (DOCS / "acl.md").read_text()


@functools.cache
def has_tls() -> bool:
    """Whether the server is built with TLS. Without certificates none begins."""
    command = [os.environ["DSYNC_TEST_SERVER"], "--port", "0", "--tls-port", "1"]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return "tls-cert-file" in said


class Login(NamedTuple):
    """A user of the page, with the page's password."""

    user: str
    password: str


WORKER, CLIENT = Login("worker", "password-of-worker"), Login("client", "password-of-client")
ADMIN = Login("admin", "password-of-admin")


def lines_of(file: str) -> list[str]:
    """Returns the lines of the page for this file."""
    block = re.search(rf"^```\n# {re.escape(file)}[^\n]*\n(.*?)^```$", PAGE, re.M | re.S)
    assert block is not None, file
    return block[1].splitlines()


def worker_line() -> str:
    """Returns the line of docs/acl.md for a worker that waits in each way, with all keys."""
    lines = re.findall(r"^user worker on >change-me (.*)$", ACL_PAGE, re.M)
    adds = re.findall(r"^\| .*\| `([^`]*subscribe[^`]*&dsync:\{jobs:\*)` \|$", ACL_PAGE, re.M)
    rights = f"{lines[-1]} {adds[0]} +role +wait".replace("~jobs:*", "~*").replace("{jobs:*", "*")
    return f"user {WORKER.user} on >{WORKER.password} {rights}"


class Certificate(NamedTuple):
    """A certificate and its key, as files in PEM."""

    certificate: str
    key: str


class Authority:
    """What signs certificates. Who trusts it trusts what it has signed."""

    CONFIG = """
[ca]
default_ca = here
[here]
new_certs_dir = {folder}
database = {folder}/index
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dsync-authority-")
        folder = Path(self._folder.name)
        (folder / "index").touch()
        (folder / "config").write_text(self.CONFIG.format(folder=folder))
        self.file = str(folder / "ca.crt")
        self._key = str(folder / "ca.key")
        asks = ["req", "-x509", *self._new_key(self._key), "-days", "3650", "-subj", "/CN=authority"]
        self._openssl(*asks, "-addext", "basicConstraints=critical,CA:TRUE", "-out", self.file)

    def certificate(self, names: str = NAMES, begins: str = "20200101", ends: str = "20491231") -> Certificate:
        """Signs a certificate for these names, of these days."""
        folder = tempfile.mkdtemp(dir=self._folder.name)
        request, made = f"{folder}/request", Certificate(f"{folder}/server.crt", f"{folder}/server.key")
        asks = ["req", *self._new_key(made.key), "-subj", "/CN=server", "-addext", f"subjectAltName={names}"]
        self._openssl(*asks, "-out", request)
        signs = ["ca", "-batch", "-notext", "-in", request, "-out", made.certificate]
        times = ["-startdate", f"{begins}000000Z", "-enddate", f"{ends}000000Z"]
        self._openssl(*signs, "-cert", self.file, "-keyfile", self._key, *times)
        return made

    def close(self) -> None:
        self._folder.cleanup()

    @staticmethod
    def _new_key(file: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file]

    def _openssl(self, command: str, *words: str) -> None:
        config = ["-config", f"{self._folder.name}/config"]
        done = subprocess.run(["openssl", command, *config, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Tls(NamedTuple):
    """What a server shows, and the authorities that it trusts itself."""

    certificate: Certificate
    trusted: str


class Guarded(Server):
    """A server or a Sentinel with the lines of the page. Without TLS, those of TLS are left out."""

    def __init__(self, *lines: str, tls: Optional[Tls], primary: int = 0, **settings: Any) -> None:
        self._lines = [*lines, f"user {ADMIN.user} on >{ADMIN.password} ~* &* +@all"]
        self._tls = tls
        self._primary = primary
        super().__init__(**settings)

    def client(self, **settings: Any) -> Any:
        over_tls = {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False} if self._tls else {}
        return super().client(username=ADMIN.user, password=ADMIN.password, **over_tls, **settings)

    def show(self, certificate: Certificate) -> None:
        """Shows another certificate from now on to those who connect, and closes all connections."""
        words = ["tls-cert-file", certificate.certificate, "tls-key-file", certificate.key]
        self.client().execute_command("CONFIG", "SET", *words)
        self.close_connections()

    def start_with(self, certificate: Certificate) -> None:
        """Starts again, with another certificate: a Sentinel cannot be told one while it runs."""
        assert self._tls is not None
        self.kill()
        self._tls = self._tls._replace(certificate=certificate)
        self.start()

    def set_password(self, login: Login, password: str) -> None:
        """The user has another password, and who came with the last one is gone."""
        self.client().execute_command("ACL", "SETUSER", login.user, "resetpass", f">{password}")
        self.close_connections()

    def close_connections(self) -> None:
        for kind in ("normal", "pubsub"):
            self.client().execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def _typed(self, of_sentinel: bool) -> list[str]:
        """Returns the lines with ports, names and files of this machine: of Sentinel, or all others."""
        typed = []
        for line in self._lines:
            name = line.split()[0]
            if name in ("port", "tls-port") or (name.startswith("tls-") and self._tls is None):
                continue
            if (name in ("sentinel", "user")) is of_sentinel:
                typed.append(self._put(line))
        return typed

    def _put(self, line: str) -> str:
        if self._tls is not None:
            (certificate, key), trusted = self._tls
            for name, file in (("server.crt", certificate), ("server.key", key), ("ca.crt", trusted)):
                line = line.replace(f"/etc/redis/tls/{name}", file)
        line = line.replace("redis-1.example 6379", f"{HOST} {self._primary}")
        return re.sub(r"(redis|sentinel)-1\.example", HOST, line)

    def _port_words(self) -> list[str]:
        ports = ["--port", "0", "--tls-port", str(self.port)] if self._tls else super()._port_words()
        lines = self._typed(of_sentinel=False)
        if self._sentinel_of is None:
            lines += self._typed(of_sentinel=True)
        return ports + [word for line in lines for word in f"--{line}".split()]

    def _sentinel_lines(self) -> str:
        # Sentinels may be kept out of their primary for a while, and are not to choose another one then.
        times = [f"sentinel down-after-milliseconds {GROUP} 600000", f"sentinel failover-timeout {GROUP} 3000"]
        return "\n".join(self._typed(of_sentinel=True) + times) + "\n"


class GuardedGroup:
    """A primary, its replica, and two Sentinels."""

    def __init__(self, over_tls: bool) -> None:
        self.authorities = [Authority(), Authority()] if over_tls else []
        self._tls = Tls(self.authorities[0].certificate(), self._bundle()) if over_tls else None
        self._servers: list[Guarded] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _bundle(self) -> str:
        """Servers trust both authorities, so that a replica goes on when only clients are to refuse its primary."""
        file = Path(self.authorities[0].file).with_name("both.crt")
        file.write_text("".join(Path(authority.file).read_text() for authority in self.authorities))
        return str(file)

    def _start(self) -> None:
        lines = [*lines_of("redis.conf"), worker_line(), "repl-diskless-sync-delay 0"]
        self.primary = self._add(Guarded(*lines, tls=self._tls))
        behind = "replicaof redis-1.example 6379"
        self.replica = self._add(Guarded(*lines, behind, tls=self._tls, primary=self.primary.port))
        until_in_sync(self.primary)
        lines = lines_of("sentinel.conf")
        port = self.primary.port
        self.sentinels = [self._add(Guarded(*lines, tls=self._tls, primary=port, sentinel_of=port)) for _ in range(2)]
        for sentinel in self.sentinels:
            eventually(lambda sentinel=sentinel: self._knows_all(sentinel), "a Sentinel that knows all others")

    def _add(self, server: Guarded) -> Guarded:
        self._servers.append(server)
        return server

    def _knows_all(self, sentinel: Guarded) -> bool:
        told = sentinel.client().sentinel_master(GROUP)
        return bool(told["num-slaves"] == 1 and told["num-other-sentinels"] == len(self.sentinels) - 1)

    @property
    def certificate(self) -> Certificate:
        """That of all servers and Sentinels, as far as they show no other one."""
        assert self._tls is not None
        return self._tls.certificate

    def ports(self) -> list[int]:
        return [sentinel.port for sentinel in self.sentinels]

    def login(self) -> dict[str, Any]:
        """The words of a driver's `connect` that let it in."""
        words = {"user": WORKER.user, "password": WORKER.password}
        words.update(sentinel_user=CLIENT.user, sentinel_password=CLIENT.password)
        return {**words, "ca": self.authorities[0].file} if self._tls else words

    def close(self) -> None:
        for one in (*self._servers, *self.authorities):
            one.close()

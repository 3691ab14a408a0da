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

#: The name of the group, and under which everybody knows a server of it.
GROUP, HOST = "locks", "localhost"
#: The names in a certificate that clients look for.
NAMES = f"DNS:{HOST},IP:127.0.0.1"
ACL_PAGE = Path(__file__).parents[2] / "docs/acl.md"


@functools.cache
def has_tls() -> bool:
    """Whether the server is built with TLS. Without certificates none begins."""
    command = [os.environ["DSYNC_TEST_SERVER"], "--port", "0", "--tls-port", "1"]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return "tls-cert-file" in said


def worker() -> str:
    """Returns the rights of docs/acl.md for a worker that waits in each way, with all keys."""
    lines = re.findall(r"^user worker on >change-me (.*)$", ACL_PAGE.read_text(), re.M)
    adds = re.findall(r"^\| .*\| `([^`]*subscribe[^`]*&dsync:\{jobs:\*)` \|$", ACL_PAGE.read_text(), re.M)
    return f"{lines[-1]} {adds[0]} +role +wait".replace("~jobs:*", "~*").replace("{jobs:*", "*")


#: What a Sentinel does at a server, what it does at another Sentinel, and what a client asks it.
WATCHES = (
    "allchannels -@all +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info "
    "+client|setname +client|kill +script|kill"
)
SPEAKS = "allchannels -@all +@all"
ASKS = "allchannels -@all +@all"


class Login(NamedTuple):
    user: str
    password: str


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


class Guarded(Server):
    """A server or a Sentinel where everybody logs in. It has a certificate where everything is said over TLS."""

    ADMIN = Login("admin", "secret-of-admin")

    def __init__(
        self,
        *arguments: str,
        users: dict[Login, str],
        tls: Optional[tuple[Certificate, str]],
        lines: str = "",
        **settings: Any,
    ) -> None:
        self._tls = tls
        self._lines = lines
        everybody = {**users, self.ADMIN: "~* &* +@all"}
        words = ["--user", "default", "off"]
        for (user, password), rights in everybody.items():
            words += ["--user", user, "on", f">{password}", *rights.split()]
        super().__init__(*words, *arguments, **settings)

    def client(self, **settings: Any) -> Any:
        user, password = self.ADMIN
        over_tls = {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False} if self._tls else {}
        return super().client(username=user, password=password, **over_tls, **settings)

    def show(self, certificate: Certificate) -> None:
        """Shows another certificate from now on to those who connect, and closes all connections."""
        words = ["tls-cert-file", certificate.certificate, "tls-key-file", certificate.key]
        self.client().execute_command("CONFIG", "SET", *words)
        self.close_connections()

    def start_with(self, certificate: Certificate) -> None:
        """Starts again, with another certificate: a Sentinel cannot be told one while it runs."""
        assert self._tls is not None
        self.kill()
        self._tls = (certificate, self._tls[1])
        self.start()

    def set_password(self, login: Login, password: str) -> None:
        """The user has another password, and who came with the last one is gone."""
        self.client().execute_command("ACL", "SETUSER", login.user, "resetpass", f">{password}")
        self.close_connections()

    def close_connections(self) -> None:
        for kind in ("normal", "pubsub"):
            self.client().execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def _port_words(self) -> list[str]:
        if self._tls is None:
            return super()._port_words()
        (certificate, key), trusted = self._tls
        words = ["--port", "0", "--tls-port", str(self.port), "--tls-replication", "yes", "--tls-auth-clients", "no"]
        return [*words, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", trusted]

    def _sentinel_lines(self) -> str:
        # Sentinels may be kept out of their primary for a while, and are not to choose another one then.
        return f"{self._lines}{super()._sentinel_lines()}sentinel down-after-milliseconds {GROUP} 600000\n"


class GuardedGroup:
    """A primary, its replica, and two Sentinels that call them ``locks``."""

    #: Who works with locks, and as whom it asks a Sentinel.
    APP, ASKER = Login("app", "secret-of-app"), Login("asker", "secret-of-asker")
    #: As whom a replica comes to its primary, a Sentinel to a server, and a Sentinel to another one.
    REPLICA, WATCHER, PEER = (Login(name, f"secret-of-{name}") for name in ("replica", "watcher", "peer"))

    def __init__(self, over_tls: bool) -> None:
        self.authorities = [Authority(), Authority()] if over_tls else []
        self._tls = (self.authorities[0].certificate(), self._bundle()) if over_tls else None
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
        users = {self.APP: worker(), self.REPLICA: "-@all +psync +replconf +ping", self.WATCHER: WATCHES}
        words = ["--masteruser", self.REPLICA.user, "--masterauth", self.REPLICA.password]
        words += ["--replica-announce-ip", HOST, "--repl-diskless-sync-delay", "0"]
        self.primary = self._add(Guarded(*words, users=users, tls=self._tls))
        behind = ("--replicaof", HOST, str(self.primary.port))
        self.replica = self._add(Guarded(*words, *behind, users=users, tls=self._tls))
        until_in_sync(self.primary)
        lines = f"""\
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip {HOST}
sentinel sentinel-user {self.PEER.user}
sentinel sentinel-pass {self.PEER.password}
sentinel auth-user {GROUP} {self.WATCHER.user}
sentinel auth-pass {GROUP} {self.WATCHER.password}
"""
        users = {self.ASKER: ASKS, self.PEER: SPEAKS}
        words = {"lines": lines, "sentinel_of": self.primary.port, "watches": HOST}
        self.sentinels = [self._add(Guarded(users=users, tls=self._tls, **words)) for _ in range(2)]
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
        return self._tls[0]

    def ports(self) -> list[int]:
        return [sentinel.port for sentinel in self.sentinels]

    def login(self) -> dict[str, Any]:
        """The words of a driver's `connect` that let it in."""
        words = {"user": self.APP.user, "password": self.APP.password}
        words.update(sentinel_user=self.ASKER.user, sentinel_password=self.ASKER.password)
        return {**words, "ca": self.authorities[0].file} if self._tls else words

    def close(self) -> None:
        for one in (*self._servers, *self.authorities):
            one.close()

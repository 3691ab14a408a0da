"""Who refuses what: the table "Refusals" of PROTOCOL.md. Rows tell of a server that refuses a password."""

import contextlib
import gc
import importlib
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Sequence

import pytest
from modes import Mode, User, modes
from servers import Server, closing, eventually, free_port

# A loop that ends at once leaves TLS connections half closed: no server has answered their end yet.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")

#: What the log says of a request that is repeated.
AGAIN = "asking for 'k' again"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Those connections are collected here, and not in another test."""
    yield
    gc.collect()


@contextlib.contextmanager
def user_of(mode: Mode, connect: Callable[[Any], Any]) -> Iterator[User]:
    """Yields a user of the client that ``connect`` makes of the mode's library."""
    library = importlib.import_module(f"{mode.library}.asyncio" if mode.is_async else mode.library)
    way: Any = SimpleNamespace(is_async=mode.is_async, connect=lambda _: connect(library))
    with contextlib.closing(User(way, None)) as user:
        yield user


class Certificates:
    """Certificates of a server at 127.0.0.1, made by ``openssl``: a right one, and some that a client refuses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._make("ca", "IP:127.0.0.1", "2")
        self._make("other-ca", "IP:127.0.0.1", "2")
        self._make("right", "IP:127.0.0.1", "2", "ca")
        self._make("untrusted", "IP:127.0.0.1", "2", "other-ca")
        self._make("of another name", "DNS:elsewhere.example", "2", "ca")
        self._make("expired", "IP:127.0.0.1", "0", "ca")

    def _file(self, name: str) -> str:
        return str(self._folder / name)

    def _make(self, name: str, subject: str, days: str, authority: str = "") -> None:
        """Makes a key and its certificate, signed by an authority or by itself."""
        key, certificate, request = (self._file(f"{name}.{end}") for end in ("key", "crt", "request"))
        new_key = ("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", f"/CN={name}")
        if not authority:
            self._openssl(*new_key, "-x509", "-days", days, "-out", certificate)
            return
        Path(f"{request}-extensions").write_text(f"subjectAltName={subject}")
        self._openssl(*new_key, "-out", request)
        by = ("-CA", self._file(f"{authority}.crt"), "-CAkey", self._file(f"{authority}.key"), "-CAcreateserial")
        out = ("-days", days, "-extfile", f"{request}-extensions", "-out", certificate)
        self._openssl("x509", "-req", "-in", request, *by, *out)

    @staticmethod
    def _openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def settings(self, name: str) -> list[str]:
        """Returns the settings of a server that shows this certificate."""
        files = {"tls-cert-file": f"{name}.crt", "tls-key-file": f"{name}.key", "tls-ca-cert-file": "ca.crt"}
        return [word for option, file in files.items() for word in (option, self._file(file))]

    @property
    def trusted(self) -> dict[str, Any]:
        """The options of a client that trusts the first authority."""
        return {"ssl": True, "ssl_ca_certs": self._file("ca.crt"), "ssl_check_hostname": True}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def encrypted(own_server: Server, certificates: Certificates) -> tuple[Server, int]:
    """A server with the right certificate, and its port for TLS."""
    show(own_server, certificates, "right")
    port = free_port()
    own_server.client().config_set("tls-port", port)
    return own_server, port


def show(server: Server, certificates: Certificates, name: str) -> None:
    """Has the server show this certificate, and end all connections."""
    control = server.client()
    control.execute_command("CONFIG", "SET", "tls-auth-clients", "no", *certificates.settings(name))
    control.execute_command("CLIENT", "KILL", "TYPE", "normal")


@modes("one")
@pytest.mark.parametrize("refused", ["untrusted", "of another name", "expired"])
def test_certificate_that_is_refused_ends_a_request_but_not_a_release(
    mode: Mode, encrypted: tuple[Server, int], certificates: Certificates, refused: str, caplog: Any
) -> None:
    caplog.set_level("INFO", "dsync")
    server, port = encrypted

    def connect(library: Any) -> Any:
        return getattr(library, mode.library.capitalize())(host="127.0.0.1", port=port, **certificates.trusted)

    with user_of(mode, connect) as user:
        hold = user.do(user.lock("k", lease=20).acquire())
        show(server, certificates, refused)
        for claim in (user.lock("k"), user.lock("k", own_connection=False), user.group("k").member()):
            with pytest.raises(mode.errors.ConnectionError, match="certificate"):
                user.do(claim.acquire())
        assert AGAIN not in caplog.text
        released: list[bool] = []
        releasing = threading.Thread(target=lambda: released.append(user.do(hold.release())))
        releasing.start()
        eventually(lambda: AGAIN in caplog.text, "a release that is repeated")
        show(server, certificates, "right")
        releasing.join(30)
        assert released == [True]


def primary_of(library: Any, ports: Sequence[int], **options: Any) -> Any:
    """Returns a client of the primary that the Sentinels at these ports name."""
    guards = importlib.import_module(f"{library.__name__}.sentinel")
    return guards.Sentinel([("127.0.0.1", port) for port in ports], sentinel_kwargs=options).master_for("locks")


class Guarded:
    """A primary with three Sentinels."""

    def __init__(self) -> None:
        self.primary = Server()
        self.sentinels = [Server(sentinel_of=self.primary.port) for _ in range(3)]

    def connect(self, library: Any) -> Any:
        return primary_of(library, [sentinel.port for sentinel in self.sentinels])

    def forget(self, user: User) -> None:
        """Has the next request of this client ask who the primary is."""
        user.client._dsync.route._primary = None

    def refuse(self, *sentinels: Server) -> None:
        for sentinel in sentinels:
            control = sentinel.client()
            control.execute_command("ACL", "SETUSER", "default", "resetpass", ">right")
            control.execute_command("CLIENT", "KILL", "TYPE", "normal")

    def accept(self, *sentinels: Server) -> None:
        for sentinel in sentinels:
            sentinel.client(password="right").execute_command("ACL", "SETUSER", "default", "nopass")

    def close(self) -> None:
        for server in (self.primary, *self.sentinels):
            server.close()


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with contextlib.closing(Guarded()) as guarded:
        yield guarded


@modes("one")
def test_sentinels_that_refuse(mode: Mode, guarded: Guarded, caplog: Any) -> None:
    """The first one that refused a password, in the middle of a rotation, ended each request."""
    caplog.set_level("INFO", "dsync")
    first, second, third = guarded.sentinels
    refusal = rf"the Sentinel at 127.0.0.1:({first.port}|{second.port}|{third.port}): "
    with user_of(mode, guarded.connect) as user:
        guarded.refuse(first, second)
        hold = user.do(user.lock("k").acquire())
        assert AGAIN not in caplog.text
        guarded.forget(user)
        guarded.refuse(third)
        with pytest.raises(mode.errors.AuthenticationError, match=refusal):
            user.do(user.lock("k").acquire())
        assert AGAIN not in caplog.text
        # The hold is released as soon as one of them accepts.
        released: list[bool] = []
        releasing = threading.Thread(target=lambda: released.append(user.do(hold.release())))
        releasing.start()
        eventually(lambda: AGAIN in caplog.text, "a release that is repeated")
        guarded.accept(third)
        releasing.join(30)
        assert released == [True]
        # Those that are not reachable may accept it, so the request is repeated. The error is the refusal.
        caplog.clear()
        guarded.forget(user)
        third.kill()
        with pytest.raises(mode.errors.AuthenticationError, match=refusal):
            user.do(user.lock("k", retry_for=0.5).acquire())
        assert AGAIN in caplog.text


@modes("one")
def test_sentinel_with_an_untrusted_certificate(mode: Mode, certificates: Certificates, caplog: Any) -> None:
    caplog.set_level("INFO", "dsync")
    primary, ports = Server(), [free_port(), free_port()]
    options = [["tls-port", str(port), "tls-auth-clients", "no"] for port in ports]
    options = [more + certificates.settings(name) for more, name in zip(options, ("untrusted", "right"))]
    words = [[f"--{word}" if word.startswith("tls-") else word for word in each] for each in options]
    sentinels = [Server(*each, sentinel_of=primary.port) for each in words]
    with closing(primary, *sentinels):
        with user_of(mode, lambda library: primary_of(library, ports, **certificates.trusted)) as user:
            assert user.do(user.do(user.lock("k").acquire()).release())
        refusal = pytest.raises(mode.errors.ConnectionError, match=f"the Sentinel at 127.0.0.1:{ports[0]}: .*certific")
        with user_of(mode, lambda library: primary_of(library, ports[:1], **certificates.trusted)) as user, refusal:
            user.do(user.lock("k").acquire())
        assert AGAIN not in caplog.text

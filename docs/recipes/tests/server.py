"""A server of the tests' own, with the module, on a free port of 127.0.0.1 and in a folder that goes with it."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from types import TracebackType

_SOON = 20


class Server:
    def __enter__(self) -> "Server":
        self._folder = tempfile.mkdtemp(prefix="dsync-recipes-")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        with open(os.path.join(self._folder, "log"), "wb") as log:
            self._process = subprocess.Popen(
                [os.environ["DSYNC_TEST_SERVER"], "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
                + ["--dir", self._folder, "--loadmodule", os.environ["DSYNC_TEST_MODULE"]],
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _SOON
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(16).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self._folder, "log"), encoding="utf-8", errors="replace") as log:
                    raise RuntimeError(f"the server does not start:\n{log.read()}")
            time.sleep(0.02)

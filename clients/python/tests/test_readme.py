"""The snippets of the README, run as they are but for the server's port."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from servers import Server

SNIPPETS: list[str] = re.findall(
    r"```python\n(.*?)```", Path(__file__).parent.parent.joinpath("README.md").read_text(), re.S
)


class Stubs(dict):  # type: ignore[type-arg]
    """The functions of the reader's own that the snippets call."""

    def __init__(self) -> None:
        super().__init__(parts=[1, 2, 3], __name__="snippet")
        self.called: list[str] = []
        for name in ("write", "alert", "report", "read", "call", "export", "load"):
            self[name] = self._stub(name, None)
        self["make_report"] = self._stub("make_report", "report.pdf")
        self["charge"] = self._stub("charge", "ch_7")
        self["work"] = self._stub("work", _Awaitable())

    def _stub(self, name: str, value: Any) -> Any:
        def stub(*_: Any, **__: Any) -> Any:
            self.called.append(name)
            return value

        return stub


class _Awaitable:
    def __await__(self) -> Any:
        return iter(())


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.split("\n")[-2][:30])
def test_snippet_runs(server: Server, snippet: str) -> None:
    stubs = Stubs()
    # In a thread without an event loop, as asyncio.run() expects it.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(exec, snippet.replace(".Redis()", f".Redis(port={server.port})"), stubs).result()
    assert stubs.called
    assert server.client().execute_command("DSYNC.HOLDS", 0, "COUNT", 1_000)[1] == []


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == 7

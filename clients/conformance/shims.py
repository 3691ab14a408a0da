"""Libraries that are preloaded into servers: a wall clock that can be set, a disk that loses what was not synced.

Their sources are in testkit/shims; testkit/src/disk.rs and wall_clock.rs use them too.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Optional

from servers import Server

REPOSITORY = Path(__file__).parents[2]
#: The file by which the library of the disk is told that the power has failed.
ORDER = "power-lost"


@functools.cache
def compiled(name: str) -> Optional[Path]:
    """Compiles a library. Returns None, and says so, where there is no C compiler."""
    if shutil.which("cc") is None:
        print("left out: there is no C compiler", flush=True)
        return None
    folder = REPOSITORY / "target" / "shims"
    folder.mkdir(parents=True, exist_ok=True)
    # Another round may compile the same one, or have it loaded.
    draft, library = folder / f"{name}-{os.getpid()}.so", folder / f"{name}.so"
    source = REPOSITORY / "testkit" / "shims" / f"{name}.c"
    options = ["-shared", "-fPIC", "-O1", "-o", str(draft), str(source), "-ldl", "-lpthread"]
    subprocess.run(["cc", *options], check=True)
    draft.rename(library)
    return library


class Machine:
    """What servers of one machine have in common: its wall clock, and a disk. Without a C compiler it has neither."""

    def __init__(self) -> None:
        self.has_shims = compiled("wall_clock") is not None
        self._folder = tempfile.TemporaryDirectory(prefix="dsync-clock-")
        self._shift = Path(self._folder.name, "shift")
        self._shift.write_bytes(bytes(16))

    def environment(self) -> dict[str, str]:
        """What a server of this machine is started with."""
        libraries = [str(library) for library in map(compiled, ("wall_clock", "disk")) if library]
        if not libraries:
            return {}
        return {"LD_PRELOAD": ":".join(libraries), "DSYNC_TEST_SHIFT": str(self._shift)}

    def set_clock(self, seconds: float) -> None:
        """The clock is so far ahead of the right time, or behind it."""
        # In place: the servers have the file mapped.
        with self._shift.open("r+b") as file:
            file.write(struct.pack("qq", int(seconds * 1_000_000), 0))


def lose_power(server: Server, kept_per_cent: int) -> None:
    """Kills a server. At its next start the disk has what was synced, and so much of what was not."""
    server.kill()
    Path(server.folder, ORDER).write_text(str(kept_per_cent))

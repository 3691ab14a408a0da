"""The threads that renew the holds of a client."""

from __future__ import annotations

import threading
from typing import Any

from .._renewals import RenewalsBase, renew
from .._retry import log
from ._talk import run


class Renewals(RenewalsBase):
    def _reset(self) -> None:
        super()._reset()
        self._changed = threading.Event()

    def begin(self, client: Any) -> None:
        """Called when a renewal is due, of which the thread may not know."""
        with self._lock:
            if self._renewer is None:
                thread = threading.Thread(target=self._renew, args=(client,), name="dsync-renews", daemon=True)
                thread.start()
                self._renewer = thread
        self._changed.set()

    def _renew(self, client: Any) -> None:
        while True:
            try:
                return run(renew(self._live), client, "", self._changed)
            except Exception:
                log.exception("holds are not renewed for now")
                threading.Event().wait(1)

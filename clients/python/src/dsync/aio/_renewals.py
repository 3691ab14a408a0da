"""The tasks that renew the holds of a client."""

from __future__ import annotations

import asyncio
from typing import Any

from .._renewals import RenewalsBase, renew
from .._retry import log
from ._talk import run


class Renewals(RenewalsBase):
    def _reset(self) -> None:
        super()._reset()
        self._changed = asyncio.Event()

    def begin(self, client: Any) -> None:
        """Called when a renewal is due, of which the task may not know."""
        task = self._renewer
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._changed = asyncio.Event()
            self._renewer = asyncio.create_task(self._renew(client))
        self._changed.set()

    async def _renew(self, client: Any) -> None:
        while True:
            try:
                return await run(renew(self._live), client, "", self._changed)
            except Exception:
                log.exception("holds are not renewed for now")
                await asyncio.sleep(1)

"""Who may publish in a control directory: one process at a time, as long as it is alive."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any

from thetastream.errors import ControlError
from thetastream.steering.files import Files

SECONDS = 60.0
"""A holder that was not heard of for so long is taken for dead."""
_NAME = "lease.json"


class ManagedError(ControlError):
    """Another process has the right to publish."""


class Lease:
    """The right to publish."""

    def __init__(self, files: Files, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._token = secrets.token_hex(8)
        self._holder = {"token": self._token, "process": os.getpid(), "host": socket.gethostname()}
        self._until = 0.0

    def hold(self) -> None:
        """Take or renew it; refused if somebody else has it."""
        now = self._clock()
        if now < self._until - SECONDS / 2:
            return
        found = self._read()
        if found is not None and found["token"] != self._token and _is_alive(found, now):
            raise ManagedError(
                f"the control directory is managed by process {found['process']} on"
                f" {found['host']}",
                detail=f"  its lease ends in {found['until'] - now:.0f} s unless it is renewed",
                hint="only one process may change the tables; stop that one, or ask it for changes"
                " with ts.control(...)",
            )
        until = now + SECONDS
        text = json.dumps(self._holder | {"until": until})
        if self._files.read(_NAME) is None:
            self._files.create(_NAME, text.encode())
        else:
            self._files.write(_NAME, text.encode())
        mine = self._read()
        if mine is None or mine["token"] != self._token:
            raise ManagedError("another process has just begun to manage the control directory")
        self._until = until

    def release(self) -> None:
        """Let others have it at once."""
        found = self._read()
        if found is not None and found["token"] == self._token:
            self._files.remove(_NAME)
        self._until = 0.0

    def _read(self) -> dict[str, Any] | None:
        data = self._files.read(_NAME)
        if data is None:
            return None
        try:
            raw = json.loads(data)
            return {
                "token": str(raw["token"]),
                "process": int(raw["process"]),
                "host": str(raw["host"])[:200],
                "until": float(raw["until"]),
            }
        except (ValueError, LookupError, TypeError):
            return None


def _is_alive(holder: dict[str, Any], now: float) -> bool:
    """Whether a holder may still publish: not if its process has ended, or was silent for long."""
    if holder["until"] <= now:
        return False
    if holder["host"] != socket.gethostname():
        return True
    try:
        os.kill(holder["process"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

"""Who is let in, how many at a time, for how long without a byte, and with how much memory."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from time import monotonic
from typing import Any

from thetastream.errors import SiteError, SiteRequestError
from thetastream.sizes import format_size
from thetastream.transport.messages import Limits

QUESTIONS = 8
"""Questions about the site that are answered at a time, beside all requests."""
QUESTION_SECONDS = 5.0
"""Seconds that a question may take to come, and its answer to go."""
MEMORY_SECONDS = 5.0
"""Seconds that a request waits for memory: a client counts a site as dead after ten."""
_TICK = 0.25


class Right(Enum):
    """What a token allows. Questions about the site are answered to whoever has one."""

    READ = "read"
    PUSH = "push"


class UnknownTokenError(Exception):
    """The token is missing or wrong."""


class WrongTokenError(SiteRequestError):
    """The token is good for something else."""


class Budget:
    """Bytes that all requests together may use."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._change = threading.Condition()

    @property
    def used(self) -> int:
        """Bytes that are reserved now."""
        return self._used

    @contextmanager
    def reserved(self, size: int, right: Right = Right.READ) -> Iterator[None]:
        """While inside, the bytes are nobody else's; waits for them, and not for long.

        Those who push leave an eighth to those who read.
        """
        total = self._total - (self._total // 8 if right is Right.PUSH else 0)
        if size > total:
            raise SiteRequestError(
                f"a request that needs {format_size(size)} of memory, and the site has"
                f" {format_size(self._total)} for all of them",
                hint="ask for less, or raise memory_bytes in [limits] of the site's file",
            )
        with self._change:
            if not self._change.wait_for(lambda: self._used + size <= total, MEMORY_SECONDS):
                raise SiteError("the site's memory is in use", hint="try again later")
            self._used += size
        try:
            yield
        finally:
            with self._change:
                self._used -= size
                self._change.notify_all()


class Visit:
    """One call that was let in; `context` is gRPC's, and can be cancelled by another thread."""

    def __init__(self, context: Any, seconds: float, right: Right | None = None) -> None:
        self.right = right
        self._context = context
        self._seconds = seconds
        self._since: float | None = None

    @contextmanager
    def awaiting(self, since: float | None = None) -> Iterator[None]:
        """While inside, the other end has to move: to send, or to take what is sent.

        `since`: when the wait began, if it is one of several that together take so long at most.
        """
        self._since = monotonic() if since is None else since
        try:
            yield
        finally:
            self._since = None

    def end_if_idle(self, now: float) -> None:
        """Cancel the call if the other end has not moved for too long."""
        since = self._since
        if since is not None and now - since > self._seconds:
            self._context.cancel()


class Gate:
    """Lets in who has the token, so many at a time, and ends calls on which nothing moves."""

    def __init__(self, tokens: Mapping[Right, str | None], limits: Limits) -> None:
        self._tokens = {
            right: f"Bearer {token}".encode()
            for right, token in tokens.items()
            if token is not None
        }
        self._limits = limits
        self._requests: set[Visit] = set()
        self._questions: set[Visit] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gate", daemon=True)
        self._thread.start()

    @property
    def requests(self) -> int:
        """Requests that are inside."""
        return len(self._requests)

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()

    @contextmanager
    def visit(self, context: Any, right: Right | None) -> Iterator[Visit]:
        """Let a call in; `right` is None for a question about the site."""
        self._check_token(context, right)
        if right is None:
            inside, most, seconds = self._questions, QUESTIONS, QUESTION_SECONDS
        else:
            inside, most = self._requests, self._limits.requests
            seconds = float(self._limits.idle_seconds)
        visit = Visit(context, seconds, right)
        with self._lock:
            pushing = sum(other.right is Right.PUSH for other in inside)
            # Those who push leave a quarter of the places to those who read.
            crowded = right is Right.PUSH and pushing >= max(1, most - most // 4)
            if len(inside) >= most or crowded:
                raise SiteError(
                    "the site answers too many requests already", hint="try again later"
                )
            inside.add(visit)
        try:
            yield visit
        finally:
            with self._lock:
                inside.discard(visit)

    def _check_token(self, context: Any, right: Right | None) -> None:
        if not self._tokens:
            return
        headers = [
            value for name, value in context.invocation_metadata() if name == "authorization"
        ]
        given = str(headers[0]).encode() if len(headers) == 1 else b""
        allowed = [
            right for right, token in self._tokens.items() if hmac.compare_digest(given, token)
        ]
        if not allowed:
            raise UnknownTokenError
        if right is not None and right not in allowed:
            raise WrongTokenError(
                f"the token allows to {allowed[0].value}, and not to {right.value}",
                hint=f"give the token that is in the site's {right.value}_token_file",
            )

    def _watch(self) -> None:
        while not self._closed.wait(_TICK):
            now = monotonic()
            with self._lock:
                inside = [*self._requests, *self._questions]
            for visit in inside:
                visit.end_if_idle(now)

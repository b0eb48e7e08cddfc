"""What a client does about a link or a site that fails: try again within a bound, then say why."""

from __future__ import annotations

import json
import random
from time import monotonic, sleep
from types import TracebackType

import pyarrow as pa
import pyarrow.flight as flight

from thetastream.errors import SiteDataError, SiteError, SiteRequestError, SiteUnreachableError
from thetastream.transport.addresses import Address
from thetastream.transport.requests import ERRORS

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two attempts."""
_TOO_LONG = "message larger than max"
"""What gRPC says of a message that is refused by its length; nobody else gets to see it."""
_LONGEST_TEXT = 2_000
"""Characters of a site's error that are shown."""


class FailedError(Exception):
    """An attempt has failed, and another may not: the link broke, or an answer was damaged."""

    def __init__(self, what: str, *, damaged: bool = False) -> None:
        self.damaged = damaged
        super().__init__(what)


class Patience:
    """How long a link may fail, and how long to wait between two attempts."""

    def __init__(self, bound: float, address: Address) -> None:
        self._bound = bound
        self._address = address
        self._since = monotonic()
        self._failures = 0

    def progressed(self) -> None:
        """Something has come through."""
        self._since = monotonic()
        self._failures = 0

    def failed(self, error: FailedError) -> None:
        """Wait before the next attempt, or raise what is wrong."""
        if self._failures == 0:
            # Not while things went well: whoever reads may have been busy with a batch for longer.
            self._since = monotonic()
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        # Many clients of one site must not come back at the same moment.
        pause = longest * (0.5 + 0.5 * random.random())
        self._failures += 1
        if monotonic() + pause - self._since > self._bound:
            raise self._given_up(error) from None
        sleep(pause)

    def _given_up(self, error: FailedError) -> SiteError:
        count = f"{self._failures} attempt{'' if self._failures == 1 else 's'}"
        tried = f"{count} in {monotonic() - self._since:.1f} s"
        if error.damaged:
            return SiteDataError(
                f"the answers of {self._address} are damaged: {error}",
                detail=f"  {tried}",
                hint="check the link, and whether a site of the same release listens there",
            )
        return SiteUnreachableError(
            f"the site {self._address} does not answer",
            detail=f"  {tried}; the last: {str(error)[:300]}",
            hint="check the address, that the site runs (thetastream site health), and the link",
        )


class translated:
    """Turns Flight's errors into the site's own, or into a failure that can be tried again."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, flight.FlightUnauthenticatedError):
            raise SiteRequestError(
                f"the site {self._address} refuses the token",
                hint="give a token of the site, from a file or from the environment",
            ) from None
        if isinstance(error, flight.FlightError):
            named = _named_error(error.extra_info)
            if named is not None:
                raise named from None
        if isinstance(error, flight.FlightError | pa.ArrowException) and _TOO_LONG in str(error):
            raise SiteRequestError(
                f"the request is longer than the site {self._address} takes",
                hint="ask for less at a time, or raise request_bytes in [limits] of its file",
            ) from None
        if isinstance(error, pa.ArrowInvalid):
            raise FailedError(_first_line(error), damaged=True) from None
        if isinstance(error, flight.FlightError | pa.ArrowException | OSError):
            raise FailedError(_first_line(error)) from None


def _named_error(extra: bytes | None) -> SiteError | FailedError | None:
    """The error that a site has sent by its name; None if it has sent none."""
    try:
        about = json.loads(extra or b"")
        kind = ERRORS[about["kind"]]
        texts = [
            "".join(char for char in about[name] if char.isprintable() or char == "\n")
            for name in ("what", "detail", "hint")
        ]
        again = about["again"] is True
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    what, detail, hint = (text[:_LONGEST_TEXT] for text in texts)
    if again:
        return FailedError(f"{what} {detail}".strip())
    return kind(what, detail=detail, hint=hint)


def _first_line(error: BaseException) -> str:
    # Without gRPC's own account of the call, which names ports of this process.
    text = str(error).split(". gRPC client debug context:")[0]
    return text.splitlines()[0][:300] if text else type(error).__name__

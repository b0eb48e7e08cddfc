"""A terminal that belongs to this program alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_into(log: Path) -> Iterator[None]:
    """Lets processes that start here write their errors to a file.

    The JVM and the Python workers keep what they inherit: their chatter would tear the live view.
    What matters of it reaches this process as an exception.
    """
    sys.stderr.flush()
    own = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, 2)
        os.close(own)

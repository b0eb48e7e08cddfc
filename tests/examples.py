"""How many examples a property is tried with: few in `make test`, many in `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Collection

from hypothesis import HealthCheck, settings

SHARE = int(os.environ.get("THETASTREAM_EXAMPLES", "40"))
"""Percent. Hypothesis draws other examples in each run, except where `CI` is set."""


def examples(most: int, suppress_health_check: Collection[HealthCheck] = ()) -> settings:
    """Try a property with a share of this many examples, however long each of them takes."""
    return settings(
        max_examples=max(4, most * SHARE // 100),
        deadline=None,
        suppress_health_check=suppress_health_check,
    )

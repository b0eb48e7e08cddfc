"""A join in this process, steered by a control directory on disk that others can look into."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tests.steering.histories import batches
from thetastream.options import JoinOptions
from thetastream.steering.files import LocalFiles
from thetastream.testing import InProcessJoin
from thetastream.testing.steered import Steering

MOST_BATCHES = 60


class Scene:
    """Takes one batch after the other."""

    def __init__(
        self,
        root: Path,
        predicate: str = "r.k = s.k",
        *,
        within: str | None = "12 seconds",
        max_units: int = 4,
        **options: Any,
    ) -> None:
        self.root, self.path = root, str(root)
        script = batches(np.random.default_rng(7), 2, MOST_BATCHES, 40)
        join = InProcessJoin(
            predicate,
            [table.schema for table in script[0].tables],
            within=within,
            time=None if within is None else {"r": "t", "s": "t"},
            options=JoinOptions(full_history=within is None, **{"units": 2, **options}),
        )
        self.steering = Steering(join, max_units=max_units, files=LocalFiles(root))
        self._script = iter(script)

    def feed(self, count: int = 1) -> None:
        """So many batches."""
        for step in islice(self._script, count):
            self.steering.batch(step)

    def settle(self) -> None:
        """Batches until no change is under way."""
        self.steering.settle(lambda: next(self._script))

    def poll(self, seconds: float) -> None:
        """Instead of a sleep of whoever waits for the query: its next batch."""
        self.feed()

"""A worker process, from its first task to later ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from thetastream.options import JoinOptions
from thetastream.spec.codec import to_json
from thetastream.testing.cases import SCHEMA
from thetastream.testing.inprocess import InProcessJoin

WORKER = """
import gc, sys, weakref
from pyspark import TaskContext
from thetastream.runtime import shipped
from thetastream.version import VERSION

step = sys.argv[1]


class Node:
    pass


def task():
    assert sum(batch.num_rows for batch in shipped.router(step, 0, VERSION)(iter([]))) == 2
    return gc.get_freeze_count()


assert gc.get_freeze_count() == 0
TaskContext._getOrCreate()
frozen = task()
assert frozen > 10_000, frozen
assert task() == frozen

# What comes later is collected as before.
node = Node()
node.itself = node
gone = weakref.ref(node)
del node
gc.collect()
assert gone() is None

# Spark asks a processor for its state's variables in a process of its own: nothing is done there.
class Handle:
    def getValueState(self, *_):
        return "manifest"

    def getMapState(self, *_):
        return "runs"


asked = shipped.processor(step, {})
asked.init(Handle())
asked.close()
assert "thetastream.runtime.joiner" not in sys.modules
"""


OUTSIDE = """
import gc, sys
from thetastream.runtime import shipped
from thetastream.version import VERSION

assert sum(batch.num_rows for batch in shipped.router(sys.argv[1], 0, VERSION)(iter([]))) == 2
assert gc.get_freeze_count() == 0
"""


@pytest.mark.parametrize("program", [WORKER, OUTSIDE], ids=["worker", "outside"])
def test_the_first_task_of_a_worker_freezes_what_it_loaded(program: str) -> None:
    join = InProcessJoin("r.k = s.k", (SCHEMA, SCHEMA), options=JoinOptions(units=2))
    (step,) = join.plan.tree.steps
    subprocess.run([sys.executable, "-c", program, to_json(step)], check=True)

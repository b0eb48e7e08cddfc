"""A cluster in this process: real routers, units, tables, indexes and policies, on a virtual clock.

What a machine with a few cores lacks is modelled: how fast units compute, what lies between them,
and how much memory they have. See docs/simulator.md.
"""

from thetastream.simulator.cluster import (
    Cluster,
    Counted,
    Cpu,
    Measured,
    Memory,
    Network,
)
from thetastream.simulator.simulation import Simulation
from thetastream.simulator.sources import (
    BModel,
    Columns,
    Generated,
    Normal,
    Replayed,
    Source,
    Steps,
    Uniform,
    ZipfKeys,
)
from thetastream.simulator.trace import Trace, Turn

__all__ = [
    "BModel",
    "Cluster",
    "Columns",
    "Counted",
    "Cpu",
    "Generated",
    "Measured",
    "Memory",
    "Network",
    "Normal",
    "Replayed",
    "Simulation",
    "Source",
    "Steps",
    "Trace",
    "Turn",
    "Uniform",
    "ZipfKeys",
]

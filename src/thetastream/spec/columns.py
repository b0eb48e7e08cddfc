"""The names of columns on their way through a join, in one place.

A stream's rows travel with the columns that results carry (`c_0`, `c_1`, ...) and, where a key is
more than such a column, with the key (`k_0`, ...). Results have the carried columns of all streams
(`s0_0`, ... `s1_0`, ...), or a view's groups and measures (`g_0`, ... `m_0`, ...).
"""

from __future__ import annotations

NEWEST = "newest"
"""The time of a result's newest member; in a view the last microsecond of its slice."""


def carried_column(number: int) -> str:
    """The name of a column that results carry, in a stream's rows."""
    return f"c_{number}"


def is_carried(name: str) -> bool:
    """Whether a column of a stream's rows is one that results carry."""
    return name.startswith("c_")


def derived_key(number: int) -> str:
    """The name of a key that is more than a carried column, in a stream's rows."""
    return f"k_{number}"


def result_column(stream: int, number: int) -> str:
    """The name of a carried column in a result."""
    return f"s{stream}_{number}"


def group_column(number: int) -> str:
    """The name of a group's column in a view."""
    return f"g_{number}"


def measure_column(number: int) -> str:
    """The name of a measure's column in a view."""
    return f"m_{number}"

"""What a user may choose about a join. Most choices are "auto" by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from thetastream.errors import OptionError
from thetastream.sizes import format_size, parse_size
from thetastream.spec import BLOCK_BYTES, HOT_GROUPS, SketchOptions

Topology = Literal[
    "auto",
    "hash",
    "contrand",
    "random",
    "band",
    "matrix",
    "split",
    "broadcast",
    "multi-chained",
    "stream-aware",
]
"""How tuples meet.

- `auto`: the planner chooses by the driving predicate and says why in `explain()`.
- `hash`: both sides of a key in one unit; equality joins with evenly distributed keys.
- `contrand`: the key chooses a subgroup of units; a random member stores the tuple, and all members
  of the other side's subgroup are probed; equality joins with skewed keys.
- `random`: a random unit stores the tuple, and all units of the other side are probed; any
  predicate.
- `band`: buckets of the driving key; band joins with nearly no replication.
- `matrix`: every tuple is stored in a whole row or column of units; the baseline.
- `split`: a split join: `random` with the same units for both streams; for comparison.
- `broadcast`: one stream is stored in all units, the other one is divided among them. With
  `units=4` or `units=(4, 1)` it is the second stream that is stored everywhere, with `units=(1, 4)`
  the first one. Worth it if that stream is small; any predicate.
- `multi-chained`: every tuple is stored in all units and visits one of them; for comparison.
- `stream-aware`: STA: `random` with an index that keeps frequent values apart and, if `hot_values`
  names some or `hot_keys` finds some, with units of their own for these; inequality and band joins
  with skewed values.
"""

Scheme = Literal["auto", "symmetric", "semi-symmetric", "tree"]
"""How three streams are joined.

- `auto`: symmetric for a cyclic join, semi-symmetric for a chain; a tree for more than three.
- `symmetric`: every result is completed where its oldest member is stored, in one stage.
- `semi-symmetric`: the same, but pairs of the middle stream with one end go on to the other end.
- `tree`: two-way joins one after the other; the baseline, and what four and more streams use.
"""

IndexName = Literal["auto", "runs", "extendible", "nested-loops", "pim", "stream-aware"]
"""How a unit finds the partners of a row among those that it stores.

- `auto`: sorted runs; with the stream-aware topology its own index.
- `runs`: sorted runs in a chain of sub-indexes; binary searches.
- `extendible`: extendible hashing divides each partition-group into mini-groups of bounded size,
  `theta`; a row looks at every stored row of its mini-group. For comparison; needs an equality.
- `nested-loops`: a row looks at every stored row of its partition-group. The baseline; any
  predicate.
- `pim`: a PIM-tree. New rows go to a mutable component; when that is full it is merged into the
  immutable one, without the rows that have expired. Binary searches. For comparison; any predicate.
- `stream-aware`: STA's index. Values that the unit has often seen are kept apart, each once with
  its rows behind it, and the others in sorted runs. Needs an inequality or a band, and no equality.
"""

Intermediate = Literal["packed", "pairs"]
"""How a three-way join keeps its intermediate results.

- `packed`: a hub tuple with its many partners (TuplePacking).
- `pairs`: every pair on its own; for comparison.
"""

Aggregation = Literal["auto", "enumerate"]
"""How a query aggregates.

- `auto`: in place, inside the units, wherever that is possible.
- `enumerate`: the results are listed and Spark aggregates them; for comparison.
"""

HotKeysMode = Literal["off", "auto", "watch"]
"""What becomes of keys that are so frequent that one unit would be busy with them alone.

- `off`: they are like any other.
- `auto`: the join notices them, divides them among several units, and puts them together again when
  they have cooled down.
- `watch`: the units report them, and a policy of yours decides: `ts.manage(..., [ts.HotKeys()])`.
"""

Transport = Literal["auto", "simple", "semijoin"]
"""How the tuples of a site's stream travel.

- `auto`: for each batch what costs less, by what was measured so far.
- `simple`: whole tuples (SPJ).
- `semijoin`: what the join looks at, and the rest for those tuples that are in a result (SMJ).
"""

MAX_UNITS = 1024

HOT_UNITS = 2
"""Units of each stream for its hot values where no number is given."""

THETA = "1.5 MB"
"""The size of a mini-group where none is given."""


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """Choices for one join; each has a good default.

    >>> ts.JoinOptions(topology="contrand", units=8).subgroups
    'auto'
    >>> ts.JoinOptions(units=0)
    Traceback (most recent call last):
    ...
    thetastream.errors.OptionError: units=0 is not a number of units
    What to do: give a number from 1 to 1024, one for each stream, or "auto"
    """

    topology: Topology = "auto"
    units: int | tuple[int, ...] | Literal["auto"] = "auto"
    """One number for all streams, or one for each of them (BiStream's m and n)."""
    subgroups: tuple[int, int] | Literal["auto"] = "auto"
    """ContRand's d and e: into how many subgroups each side's units are divided."""
    bucket_width: float | Literal["auto"] = "auto"
    """Width of a band bucket, in units of the driving expression."""
    hot_values: tuple[Any, ...] = ()
    """With `topology="stream-aware"`, values of the key that the inequality or the band compares
    that are known to be frequent: their rows are stored in units of their own. With `hot_keys`,
    these are the values with which the join starts."""
    hot_units: int | Literal["auto"] = "auto"
    """How many units of each stream are for its hot values; two by default. They stay as many."""
    archive_period: str | Literal["auto"] = "auto"
    """Event time that a sub-index of the chained index spans; a tenth of the window by default."""
    index: IndexName = "auto"
    """How stored rows are found."""
    theta: str | int | None = None
    """With `index="extendible"`, the size of a mini-group: text with a unit, or bytes. It is split
    above twice as much and merged with its buddy below; 1.5 MB by default."""
    chunk_rows: int = 262_144
    """Result rows that leave a unit at a time; bounds the memory of a huge result."""
    cache_bytes: int = 4 * 1024**3
    """Bytes of stored runs that each host keeps as files beside the state store; 0 for none. Tuples
    that were fetched from sites take up to a quarter of it besides."""
    aggregation: Aggregation = "auto"
    """Where the aggregates of a query are computed."""
    update_batches: int = 1
    """The units send their aggregates every so many batches: fewer updates, less to merge."""
    scheme: Scheme = "auto"
    """How three streams are joined."""
    intermediate: Intermediate = "packed"
    """How a three-way join keeps its intermediate results."""
    full_history: bool = False
    """Confirm that rows are to be kept for ever, where no window limits the join.

    Two streams are then joined without a warning; three and more are joined only with it, as their
    intermediate results are kept, too.
    """
    control: str | None = None
    """A directory for the join's routing tables, which can then be changed while the query runs: a
    path, or a URI that pyarrow knows (`s3://bucket/rides`). Driver and workers must reach it."""
    max_units: int | None = None
    """With `control`, how many units there may ever be; by default as many as the shuffle has
    partitions."""
    hot_keys: HotKeysMode = "off"
    """Whether keys that are too frequent for one unit are divided among several; needs `control`
    and an equality of two streams. With `topology="stream-aware"`, whether frequent values are
    stored in units of their own; needs `control` and an inequality or a band."""
    sketch: SketchOptions | None = None
    """With `hot_keys`, the size of the units' predictors, and how fast they forget. The
    stream-aware index uses it as well."""
    transport: Transport = "auto"
    """How the tuples of streams that are at sites travel."""
    cross: bool = False
    """Allow a stream that the predicate compares with no other."""
    functions: tuple[str, ...] = ()
    """Names of SQL functions that the predicate may call besides those that are always allowed:
    your own deterministic ones, and those that take regular expressions, such as `regexp_like`."""

    def __post_init__(self) -> None:
        allowed = Topology.__args__  # type: ignore[attr-defined]
        if self.topology not in allowed:
            raise OptionError(
                f"unknown topology {self.topology!r}",
                hint=f"choose one of {', '.join(allowed)}",
            )
        if self.aggregation not in Aggregation.__args__:  # type: ignore[attr-defined]
            raise OptionError(
                f"unknown aggregation {self.aggregation!r}",
                hint='choose "auto" or "enumerate"',
            )
        if self.scheme not in Scheme.__args__:  # type: ignore[attr-defined]
            raise OptionError(
                f"unknown scheme {self.scheme!r}",
                hint=f"choose one of {', '.join(Scheme.__args__)}",  # type: ignore[attr-defined]
            )
        if self.transport not in Transport.__args__:  # type: ignore[attr-defined]
            raise OptionError(
                f"unknown transport {self.transport!r}",
                hint=f"choose one of {', '.join(Transport.__args__)}",  # type: ignore[attr-defined]
            )
        if self.intermediate not in Intermediate.__args__:  # type: ignore[attr-defined]
            raise OptionError(
                f"unknown intermediate {self.intermediate!r}", hint='choose "packed" or "pairs"'
            )
        if self.units != "auto" and not _is_count(self.units, MAX_UNITS):
            raise OptionError(
                f"units={self.units!r} is not a number of units",
                hint=f'give a number from 1 to {MAX_UNITS}, one for each stream, or "auto"',
            )
        if self.subgroups != "auto":
            pair = isinstance(self.subgroups, tuple) and len(self.subgroups) == 2
            if not pair or not _is_count(self.subgroups, MAX_UNITS):
                raise OptionError(
                    f"subgroups={self.subgroups!r} is not a pair of numbers",
                    hint='give (d, e), both at least 1, or "auto"',
                )
            if self.topology != "contrand":
                raise OptionError(
                    "subgroups are only for the ContRand topology",
                    hint='add topology="contrand", or leave subgroups out',
                )
        if self.bucket_width != "auto" and not self.bucket_width > 0:
            raise OptionError(
                f"bucket_width={self.bucket_width!r} is not a positive number",
                hint='give a positive width or "auto"',
            )
        if not _is_count(self.update_batches, 1 << 30) or isinstance(self.update_batches, tuple):
            raise OptionError(
                f"update_batches={self.update_batches!r} is not a number of batches",
                hint="leave it out, or give at least 1",
            )
        self._check_control()
        self._check_hot_keys()
        self._check_index()
        self._check_heat()
        if self.chunk_rows < 1:
            raise OptionError(
                f"chunk_rows={self.chunk_rows!r} is not a positive number",
                hint="leave it out, or give at least 1",
            )
        if self.cache_bytes < 0:
            raise OptionError(
                f"cache_bytes={self.cache_bytes!r} is negative", hint="give 0 to turn the cache off"
            )

    @property
    def mini_group(self) -> int:
        """Bytes of a mini-group of extendible hashing."""
        return parse_size(THETA if self.theta is None else self.theta, "theta")

    @property
    def values_apart(self) -> bool:
        """Whether hot values of an inequality or a band have units of their own."""
        follows = self.topology == "stream-aware" and self.hot_keys != "off"
        return bool(self.hot_values) or follows

    def _check_index(self) -> None:
        allowed = IndexName.__args__  # type: ignore[attr-defined]
        if self.index not in allowed:
            raise OptionError(
                f"unknown index {self.index!r}", hint=f"choose one of {', '.join(allowed)}"
            )
        if self.theta is None:
            return
        if self.index != "extendible":
            raise OptionError(
                f'theta is the size of a mini-group, and index="{self.index}" has none',
                hint='add index="extendible", or leave theta out',
            )
        if self.mini_group < BLOCK_BYTES:
            raise OptionError(
                f"theta={self.theta!r} is smaller than a block of {format_size(BLOCK_BYTES)}",
                hint=f'give at least "{format_size(BLOCK_BYTES)}", or leave theta out:'
                f" it is {THETA} then",
            )

    def _check_heat(self) -> None:
        if not isinstance(self.hot_values, tuple):
            raise OptionError(
                f"hot_values={self.hot_values!r} is not a tuple of values",
                hint="write hot_values=(10, 20), with a comma if there is one value: (10,)",
            )
        auto = self.hot_units == "auto"
        if not auto and (
            isinstance(self.hot_units, tuple) or not _is_count(self.hot_units, HOT_GROUPS)
        ):
            raise OptionError(
                f"hot_units={self.hot_units!r} is not a number of units",
                hint=f'give a number from 1 to {HOT_GROUPS}, or "auto"',
            )
        if self.hot_values and self.topology != "stream-aware":
            raise OptionError(
                "hot_values are only for the stream-aware topology",
                hint='add topology="stream-aware", or leave hot_values out',
            )
        if not auto and not self.values_apart:
            raise OptionError(
                "hot_units are for the values that hot_values names, and it names none",
                hint='add hot_values=..., or hot_keys="auto" with topology="stream-aware", which'
                " finds them; or leave hot_units out: every unit then keeps its own frequent values"
                " apart",
            )

    def _check_hot_keys(self) -> None:
        allowed = HotKeysMode.__args__  # type: ignore[attr-defined]
        if self.hot_keys not in allowed:
            raise OptionError(
                f"unknown hot_keys {self.hot_keys!r}", hint=f"choose one of {', '.join(allowed)}"
            )
        if self.sketch is not None and not isinstance(self.sketch, SketchOptions):
            raise OptionError(
                f"sketch={self.sketch!r} is not the size of a sketch",
                hint="give ts.SketchOptions(...), or leave it out",
            )
        if self.hot_keys == "off":
            used = self.index == "stream-aware" or (
                self.topology == "stream-aware" and self.index == "auto"
            )
            if self.sketch is not None and not used:
                raise OptionError(
                    "sketch is for joins that look for hot keys or values",
                    hint='add hot_keys="auto" or index="stream-aware", or leave sketch out',
                )
            return
        if self.control is None:
            raise OptionError(
                f'hot_keys="{self.hot_keys}" changes the routing while the query runs',
                hint="add control=..., a directory for the routing tables",
            )
        if self.topology not in ("auto", "hash", "stream-aware"):
            raise OptionError(
                f'hot_keys splits keys that topology="hash" keeps in one unit, and this is'
                f' topology="{self.topology}"',
                hint='leave the topology "auto", or leave out hot_keys: "contrand" spreads all keys'
                " over subgroups, whether they are hot or not",
            )

    def _check_control(self) -> None:
        if self.control is not None and (not isinstance(self.control, str) or not self.control):
            raise OptionError(
                f"control={self.control!r} is not a path", hint="give a directory, as text"
            )
        if self.max_units is None:
            return
        if self.control is None:
            raise OptionError(
                "max_units is for joins that can be scaled while they run",
                hint="add control=..., a directory for the routing tables",
            )
        if isinstance(self.max_units, tuple) or not _is_count(self.max_units, MAX_UNITS):
            raise OptionError(
                f"max_units={self.max_units!r} is not a number of units",
                hint=f"give a number from 1 to {MAX_UNITS}",
            )


def _is_count(value: object, most: int) -> bool:
    """Whether it is a number from 1 to `most`, or several of them."""
    if isinstance(value, tuple):
        return len(value) > 1 and all(_is_count(item, most) for item in value)
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most

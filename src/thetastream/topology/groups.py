"""The group of a stored tuple, and the groups in which a visitor's partners may be.

Groups are what units share among themselves: `thetastream.topology.table` says which unit has which
group, and nothing here depends on it. The one invariant: the group of a stored tuple is among those
that each of its possible partners reaches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thetastream.index.bounds import interval
from thetastream.index.distinct import contained
from thetastream.index.encoding import INT64_MAX, Bools, Int64s, decode_floats
from thetastream.index.hashing import dealt, mixed, scaled
from thetastream.index.part import Tuples
from thetastream.spec import HOT_GROUPS, Edge, GroupBy, Grouping, JoinSpec, Store
from thetastream.topology.content import content_hash

MOST_BUCKETS = 8
"""A tuple whose band touches more buckets than this visits every unit."""

_FARTHEST = 2.0**62


class Reached(NamedTuple):
    """The groups that visitors reach: one for each visitor, then perhaps another one, ..."""

    columns: list[tuple[Int64s, Bools | None]]
    """A group for each visitor, and which of them reach it; None for all."""
    everywhere: Bools | None = None
    """Visitors that reach all groups."""


def group_of(spec: JoinSpec, store: Store, tuples: Tuples) -> Int64s:
    """The group of each tuple of the store's stream."""
    by = store.group_by
    if by.key is None:
        return _by_content(by, tuples)
    if by.kind is Grouping.BUCKET:
        return scaled(dealt(_buckets(spec, store, tuples.keys[by.key])), by.groups)
    return _by_key(tuples, by.key, by.groups)


def is_sent_by_content(edge: Edge, store: Store) -> bool:
    """Whether the other stream's tuples know the groups of their partners in the store."""
    by = store.group_by
    if by.key is None:
        return False
    if by.kind is Grouping.BUCKET:
        return edge.band_on(store.stream, by.key) is not None
    equality = edge.equality
    return equality is not None and equality.of(edge.side(store.stream)) == by.key


def reached(spec: JoinSpec, store: Store, visitor: int, tuples: Tuples) -> Reached | None:
    """The groups of a store that tuples of another stream reach; None for all of them."""
    by, edge = store.group_by, spec.edge(visitor, store.stream)
    if by.key is None or not is_sent_by_content(edge, store):
        return None
    side = edge.side(visitor)
    if by.kind is Grouping.KEY:
        assert edge.equality is not None
        groups = _by_key(tuples, edge.equality.of(side), by.groups)
        return Reached([(groups, None)])
    rule = edge.band_on(store.stream, by.key)
    assert rule is not None
    own = rule.of(side)
    reach = interval(rule, side == 0, tuples.keys[own], spec.streams[visitor].keys[own])
    first, last = _buckets(spec, store, reach.first), _buckets(spec, store, reach.last)
    return _touched(first, last, by.groups)


def _by_content(by: GroupBy, tuples: Tuples) -> Int64s:
    """Any group, by a hash; those of hot values are the last ones, if they are apart."""
    hashes = content_hash(tuples)
    if by.hot is None:
        return scaled(hashes, by.groups)
    cold = by.groups - HOT_GROUPS
    hot = contained(tuples.keys[by.hot.key], np.array(by.hot.codes, dtype=np.int64))
    return np.where(hot, cold + scaled(hashes, HOT_GROUPS), scaled(hashes, cold))


def _by_key(tuples: Tuples, key: int, groups: int) -> Int64s:
    """The groups of keys: a tuple is mostly stored by the key with which it visits as well."""
    name = ("groups of a key", key, groups)
    if name not in tuples.memo:
        tuples.memo[name] = groups_of_keys(tuples.keys[key], groups)
    found: Int64s = tuples.memo[name]
    return found


def groups_of_keys(codes: Int64s, groups: int) -> Int64s:
    """The group of each key, where tuples are grouped by it."""
    return scaled(dealt(codes), groups)


def spread(tuples: Tuples) -> Int64s:
    """A number for each tuple, to choose among units that are as good: random, yet repeatable."""
    return mixed(content_hash(tuples)).view(np.int64)


def _buckets(spec: JoinSpec, store: Store, keys: Int64s) -> Int64s:
    by = store.group_by
    assert by.key is not None
    assert by.width is not None
    floating = spec.streams[store.stream].keys[by.key].encoding.floating
    return buckets(keys, by.width, floating=floating)


def buckets(keys: Int64s, width: int | float, *, floating: bool) -> Int64s:
    """The bucket of each key; `floating`: whether the keys encode floats."""
    if not floating:
        return np.floor_divide(keys, np.int64(min(width, INT64_MAX)))
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.floor(decode_floats(keys) / width)
    # NaN decodes from either end of the encoding, and stays at that end.
    scale = np.where(np.isnan(scale), np.where(keys > 0, np.inf, -np.inf), scale)
    return np.clip(scale, -_FARTHEST, _FARTHEST).astype(np.int64)


def _touched(first: Int64s, last: Int64s, groups: int) -> Reached:
    """The groups of the buckets from first to last; an interval that ends before it begins has
    none."""
    # In unsigned integers a distance wraps to itself, however far the ends are apart.
    distance = last.view(np.uint64) - first.view(np.uint64)
    some = last >= first
    wide = some & (distance >= np.uint64(MOST_BUCKETS))
    inside = some & ~wide
    columns: list[tuple[Int64s, Bools | None]] = []
    while inside.any():
        step = len(columns)
        groups_of_step = scaled(dealt(first + np.int64(step)), groups)
        columns.append((groups_of_step, None if inside.all() else inside))
        inside = inside & (distance > np.uint64(step))
    return Reached(columns, wide if wide.any() else None)

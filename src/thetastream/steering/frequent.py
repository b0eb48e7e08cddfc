"""What the units' reports say of frequent and hot keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thetastream.engine.measures import imbalance
from thetastream.steering.policy import FrequentKey, SplitKey
from thetastream.steering.version import Version
from thetastream.topology.hot import HotStep
from thetastream.topology.hotvalues import is_stored_in, units_for_values

Reports = Iterable[tuple[int, dict[str, Any]]]
"""The number of a join, and the report of one of its units."""


def frequent_keys(version: Version, reports: Reports) -> tuple[FrequentKey, ...] | None:
    """The frequent keys of all joins, most frequent first; None if a unit has not told its own."""
    told = [(join, report) for join, report in reports if report.get("predicted")]
    known = {(join, report["stage"], report["unit"]) for join, report in told}
    for join, table in enumerate(version.joins):
        if len(table.stages) == 1 and any((join, 0, unit) not in known for unit in table.active(0)):
            return None
    rows: dict[int, int] = {}
    counts: dict[tuple[int, str, int], float] = {}
    texts: dict[tuple[int, str, int], str] = {}
    for join, report in told:
        table, unit = version.joins[join], report["unit"]
        for store, (stream, fresh, counted, keys) in enumerate(report["predicted"]):
            rows[join] = rows.get(join, 0) + fresh
            for key, count, shown in keys:
                if not is_stored_in(table, store, unit, key):
                    # What the unit remembers of a time when the value was hot, or was not.
                    continue
                place = (join, stream, key)
                # Units forget at different times: what compares is the share that a key has of each
                # unit's rows.
                counts[place] = counts.get(place, 0.0) + fresh * count / max(1, counted)
                texts[place] = shown or texts.get(place, "")
    found = [
        FrequentKey(
            join=place[0],
            stream=place[1],
            key=place[2],
            share=min(1.0, count / rows[place[0]]),
            shown=texts[place],
        )
        for place, count in counts.items()
        if rows[place[0]]
    ]
    return tuple(sorted(found, key=lambda one: (-one.share, one.join, one.key, one.stream)))


def split_keys(version: Version) -> tuple[SplitKey, ...]:
    """The keys that have places of their own, and the values that are stored apart."""
    keys = tuple(
        SplitKey(
            join=join,
            stream=one.stream,
            key=one.key,
            step=one.step.value,
            units=one.units,
            share=one.share,
            shown=one.shown,
            since=one.at,
        )
        for join, table in enumerate(version.joins)
        for one in table.hot
    )
    values = tuple(
        SplitKey(
            join=join,
            stream=one.stream,
            key=one.key,
            step=HotStep.HOT.value,
            units=units_for_values(table),
            share=one.share,
            shown=one.shown,
            since=one.at,
        )
        for join, table in enumerate(version.joins)
        for one in table.values
    )
    return keys + values


def gain(reports: Reports) -> list[dict[str, float]]:
    """How many times its share of the visitors the busiest unit of each join had in a batch, with
    hot keys and as it would have been without; only of joins that have such keys."""
    found = []
    listed = list(reports)
    for join in sorted({join for join, report in listed if report.get("hot")}):
        mine = [report for number, report in listed if number == join]
        busy = {report["unit"]: float(report["probes"]) for report in mine}
        alone = dict(busy)
        home: dict[int, dict[str, int]] = {}
        split: dict[int, int] = {}
        copied: dict[int, int] = {}
        for report in mine:
            unit = report["unit"]
            for news in report.get("hot", ()):
                key = news["key"]
                alone[unit] -= news["split_rows"] + news["copied_rows"]
                split[key] = split.get(key, 0) + news["split_rows"]
                places = home.setdefault(key, {})
                if news["has_split"]:
                    places["split"] = unit
                    copied[key] = news["copied_rows"]
                if news["has_copied"]:
                    places["copied"] = unit
        for key, places in home.items():
            # Without copies, tuples of each stream visit the unit that has the other's group.
            if len(places) == 2:
                alone[places["copied"]] += split[key]
                alone[places["split"]] += copied[key]
        found.append(
            {
                "join": join,
                "with": imbalance(busy.values()).ratio,
                "without": imbalance(alone.values()).ratio,
            }
        )
    return found


def worst_balance(gains: Iterable[dict[str, float]]) -> tuple[float, float] | None:
    """The join whose busiest unit would be busiest without hot keys: its balance with them, and
    without."""
    found = [(float(one["with"]), float(one["without"])) for one in gains]
    return max(found, key=lambda pair: pair[1], default=None)


def told_keys(reports: Reports) -> tuple[SplitKey, ...]:
    """The keys that have places of their own and the values that are stored apart, as the units of
    one batch tell of them."""
    units: dict[tuple[int, int], list[int]] = {}
    news: dict[tuple[int, int], dict[str, Any]] = {}
    for join, report in reports:
        for one in report.get("hot", ()):
            units.setdefault((join, one["key"]), []).append(report["unit"])
            news[join, one["key"]] = one
        for one in report.get("values", ()):
            units.setdefault((join, one["key"]), []).append(report["unit"])
            news[join, one["key"]] = one | {"step": HotStep.HOT.value}
    return tuple(
        SplitKey(
            join=join,
            stream=one["stream"],
            key=key,
            step=one["step"],
            units=tuple(sorted(units[join, key])),
            share=one["share"],
            shown=one["shown"],
            since=one["at"],
        )
        for (join, key), one in sorted(news.items())
    )

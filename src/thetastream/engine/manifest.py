"""The manifest: what a unit knows of its own state, as versioned JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from thetastream.errors import FingerprintError, ManifestVersionError, StateError
from thetastream.index.part import PartMeta
from thetastream.spec import IndexKind, JoinSpec, RoutingSpec, Stage
from thetastream.spec.codec import read
from thetastream.topology.hot import CopyFile
from thetastream.topology.live import Transfer
from thetastream.topology.makers import make
from thetastream.topology.table import Table

FORMAT = 5


@dataclass(frozen=True)
class Followed:
    """The newest version of a live table that a unit has gone by."""

    control: str
    """The control directory that it is from."""
    oldest: int
    """The oldest version that a router used in the same batch."""
    version: int
    digest: int


@dataclass(frozen=True, kw_only=True)
class HeldKey:
    """A hot key whose tuples of the copied stream a unit has since the beginning of a batch in
    which all routers made copies of them."""

    key: int
    since: int
    """The version since which copies are made."""
    full: bool = False
    """Whether it also has those from before."""
    files: tuple[CopyFile, ...] = ()
    """Those from before, if the unit has exported them."""


@dataclass
class Manifest:
    """A unit's indexes, and what it has not sent yet."""

    sequence: int = 0
    """Batches the unit has taken in; makes the ids of its parts unique."""
    indexes: list[Any] = field(default_factory=list)
    """Each index's own state; empty before the first batch."""
    pending: PartMeta | None = None
    """The stored view of batches that were not sent yet."""
    followed: Followed | None = None
    """None where the table does not change."""
    exported: list[str] = field(default_factory=list)
    """Parts whose leaving tuples are exported."""
    transfers: list[Transfer] = field(default_factory=list)
    """The files that they are in."""
    held: dict[int, HeldKey] = field(default_factory=dict)
    """The hot keys that the unit has copies for, by their codes."""
    sketches: list[Any] = field(default_factory=list)
    """The state of the predictor of each store; empty if there is none."""

    @classmethod
    def read(cls, text: str | None, spec: JoinSpec, stage: Stage, table: Table) -> Manifest:
        """The manifest that `write` wrote, if it fits the join; a new one if it wrote none."""
        if text is None:
            return cls()
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise no_manifest(error) from error
        if version != FORMAT:
            raise ManifestVersionError(
                f"the checkpoint holds state in format {version}; this release reads {FORMAT}",
                hint="run the release that wrote it, or start with a new checkpoint",
            )
        try:
            compare(raw["fingerprint"], spec.fingerprint(), WRITTEN)
            pending, followed = raw["pending"], raw["followed"]
            if followed is None:
                compare_routing(read(RoutingSpec, raw["table"]), table.made, spec)
            if raw["stage"] != stage.number:
                raise ValueError(f"stage {raw['stage']}")
            return cls(
                raw["sequence"],
                raw["indexes"],
                None if pending is None else PartMeta.from_json(pending),
                None if followed is None else read(Followed, followed),
                raw["exported"],
                [read(Transfer, one) for one in raw["transfers"]],
                {one["key"]: read(HeldKey, one) for one in raw.get("held", [])},
                raw.get("sketches", []),
            )
        except (AttributeError, ValueError, LookupError, TypeError) as error:
            raise no_manifest(error) from error

    def write(self, spec: JoinSpec, stage: Stage, table: Table) -> str:
        """The manifest as text."""
        more: dict[str, Any] = {"sketches": self.sketches} if self.sketches else {}
        if self.held:
            more["held"] = [asdict(one) for one in self.held.values()]
        return json.dumps(
            {
                "format": FORMAT,
                "fingerprint": spec.fingerprint(),
                "table": asdict(table.made),
                "stage": stage.number,
                "sequence": self.sequence,
                "indexes": self.indexes,
                "pending": None if self.pending is None else self.pending.to_json(),
                "followed": None if self.followed is None else asdict(self.followed),
                "exported": self.exported,
                "transfers": [asdict(one) for one in self.transfers],
            }
            | more,
            separators=(",", ":"),
        )


def followed_version(text: str | None) -> int:
    """The newest version of a live table that a unit has gone by; 0 before its first batch."""
    if text is None:
        return 0
    try:
        followed = json.loads(text)["followed"]
        return 0 if followed is None else int(followed["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise no_manifest(error) from error


WRITTEN = "the checkpoint was written by another query"


def no_manifest(error: Exception) -> StateError:
    """The error for text that no unit has written."""
    return StateError(
        "the state of a join unit is not a manifest",
        detail=f"{type(error).__name__}: {error}",
        hint="restore the checkpoint from a copy, or start with a new one",
    )


_UNSAID = {"index": IndexKind.RUNS.value}
"""What a fingerprint means that does not mention it."""


def compare(stored: Mapping[str, str], current: Mapping[str, str], what: str) -> None:
    """Refuse state that a different query wrote."""
    # In both directions: what only one of them knows is a difference as well.
    changed = [
        name for name in dict.fromkeys((*current, *stored)) if stored.get(name) != current.get(name)
    ]
    if changed:
        values = [
            [side.get(name, _UNSAID.get(_bare(name), "not known")) for side in (stored, current)]
            for name in changed
        ]
        lines = [
            f"  {name}: was {was}, is {now}"
            for name, (was, now) in zip(changed, values, strict=True)
        ]
        hint = "put the query back as it was, or start it with a new checkpoint location"
        if {_bare(name) for name in changed} == {"index"}:
            hint = f'give the index of the checkpoint, JoinOptions(index="{values[0][0]}"), or'
            hint += " start it with a new checkpoint location"
        raise FingerprintError(
            f"{what}: {', '.join(changed)} changed", detail="\n".join(lines), hint=hint
        )


def _bare(name: str) -> str:
    """The name of an entry without that of its join."""
    return name.partition(" of join ")[0]


def compare_routing(stored: RoutingSpec, routing: RoutingSpec, spec: JoinSpec) -> None:
    """Refuse a table whose visitors would miss tuples that another one has placed."""
    if stored == routing:
        return
    alike = stored.routing is routing.routing and len(stored.units) == len(spec.streams)
    if alike and make(spec, routing).covers(make(spec, stored), spec):
        return
    changed = {
        name: (was, now)
        for name, was, now in (
            ("topology", stored.routing.value, routing.routing.value),
            ("units", _listed(stored.units), _listed(routing.units)),
            ("subgroups", _listed(stored.subgroups), _listed(routing.subgroups)),
        )
        if was != now
    }
    hint = "put the query back as it was, or start it with a new checkpoint location"
    if list(changed) == ["units"]:
        # The usual cause: "auto" follows the cores, and this machine has other ones.
        units = _listed(stored.units)
        hint = f"give the units of the checkpoint, JoinOptions(units=({units})), or start it"
        hint += " with a new checkpoint location"
    raise FingerprintError(
        f"{WRITTEN}: {', '.join(changed)} changed",
        detail="\n".join(f"  {name}: was {was}, is {now}" for name, (was, now) in changed.items()),
        hint=hint,
    )


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"

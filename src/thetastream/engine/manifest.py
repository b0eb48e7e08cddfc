"""The manifest: what a unit knows of its own state, as versioned JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from thetastream.errors import FingerprintError, ManifestVersionError, StateError
from thetastream.index.chain import Chain, subs_from_json
from thetastream.index.part import PartMeta
from thetastream.spec import JoinSpec, Routing

FORMAT = 1


@dataclass
class Manifest:
    """A unit's chains and counters."""

    sequence: int
    """Batches the unit has taken in; makes the ids of its parts unique."""
    chains: tuple[Chain, ...]
    counters: dict[str, int] = field(default_factory=dict)
    pending: PartMeta | None = None
    """The stored view of batches that were not sent yet."""

    @classmethod
    def new(cls, spec: JoinSpec) -> Manifest:
        """The manifest of a unit that has seen nothing."""
        return cls(0, tuple(_chain(spec, stream, []) for stream in range(len(spec.streams))))

    @classmethod
    def read(cls, text: str, spec: JoinSpec) -> Manifest:
        """The manifest that `write` wrote, if it fits the query."""
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise _no_manifest(error) from error
        if version != FORMAT:
            raise ManifestVersionError(
                f"the checkpoint holds state in format {version}; this release reads {FORMAT}",
                hint="run the release that wrote it, or start with a new checkpoint",
            )
        try:
            stored: dict[str, str] = raw["fingerprint"]
            _compare(stored, spec)
            chains = tuple(
                _chain(spec, stream, subs_from_json(subs))
                for stream, subs in enumerate(raw["chains"])
            )
            pending = raw.get("pending")
            meta = None if pending is None else PartMeta.from_json(pending)
            return cls(raw["sequence"], chains, raw["counters"], meta)
        except (AttributeError, ValueError, LookupError, TypeError) as error:
            raise _no_manifest(error) from error

    def write(self, spec: JoinSpec) -> str:
        """The manifest as text."""
        return json.dumps(
            {
                "format": FORMAT,
                "fingerprint": spec.fingerprint(),
                "sequence": self.sequence,
                "chains": [chain.to_json() for chain in self.chains],
                "counters": self.counters,
                "pending": None if self.pending is None else self.pending.to_json(),
            },
            separators=(",", ":"),
        )


def _no_manifest(error: Exception) -> StateError:
    return StateError(
        "the state of a join unit is not a manifest",
        detail=f"{type(error).__name__}: {error}",
        hint="restore the checkpoint from a copy, or start with a new one",
    )


def _chain(spec: JoinSpec, stream: int, subs: list[Any]) -> Chain:
    keeps = spec.window.keeps(stream) if spec.window else None
    return Chain(
        time=spec.streams[stream].time,
        keeps=keeps,
        # What never expires is one sub-index: its runs are merged into ever larger ones.
        period=None if keeps is None else spec.archive_period,
        subs=subs,
    )


def differences(stored: dict[str, str], spec: JoinSpec) -> list[str]:
    """What differs from the query that wrote the state, unless that cannot lose a result."""
    current = spec.fingerprint()
    changed = [name for name in current if stored.get(name) != current[name]]
    if "units" in changed and spec.routing.routing is Routing.RANDOM:
        old = [int(count) for count in stored["units"].split(",")]
        # Every unit is probed, so units may be added; those taken away would keep their tuples.
        if all(new >= before for new, before in zip(spec.routing.units, old, strict=True)):
            changed.remove("units")
    return changed


def _compare(stored: dict[str, str], spec: JoinSpec) -> None:
    """Refuse state that a different query wrote."""
    current = spec.fingerprint()
    changed = differences(stored, spec)
    if changed:
        lines = [f"  {name}: was {stored.get(name)}, is {current[name]}" for name in changed]
        raise FingerprintError(
            f"the checkpoint was written by another query: {', '.join(changed)} changed",
            detail="\n".join(lines),
            hint="put the query back as it was, or start it with a new checkpoint location",
        )

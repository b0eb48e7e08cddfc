"""The manifest: what a unit knows of its own state, as versioned JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from thetastream.errors import FingerprintError, ManifestVersionError, StateError
from thetastream.index.chain import Chain, subs_from_json
from thetastream.index.part import PartMeta
from thetastream.spec import Retention

FORMAT = 1


class Fingerprinted(Protocol):
    """A query that a checkpoint belongs to."""

    def fingerprint(self) -> dict[str, str]:
        """Named parts of the query, each as a short text."""

    def allows(self, name: str, stored: str) -> bool:
        """Whether a part of the fingerprint may have been otherwise."""


class StateSpec(Fingerprinted, Protocol):
    """What of a join its stored state depends on."""

    def chains(self) -> tuple[Retention, ...]:
        """How long the entries of each index of a unit are kept."""


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
    def new(cls, spec: StateSpec) -> Manifest:
        """The manifest of a unit that has seen nothing."""
        return cls(0, tuple(_chain(kept, []) for kept in spec.chains()))

    @classmethod
    def read(cls, text: str | None, spec: StateSpec) -> Manifest:
        """The manifest that `write` wrote, if it fits the query; a new one if it wrote none."""
        if text is None:
            return cls.new(spec)
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
            compare(stored, spec, "the checkpoint was written by another query")
            chains = tuple(
                _chain(kept, subs_from_json(subs))
                for kept, subs in zip(spec.chains(), raw["chains"], strict=True)
            )
            pending = raw.get("pending")
            meta = None if pending is None else PartMeta.from_json(pending)
            return cls(raw["sequence"], chains, raw["counters"], meta)
        except (AttributeError, ValueError, LookupError, TypeError) as error:
            raise _no_manifest(error) from error

    def write(self, spec: StateSpec) -> str:
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


def _chain(kept: Retention, subs: list[Any]) -> Chain:
    return Chain(time=kept.time, keeps=kept.keeps, period=kept.period, life=kept.life, subs=subs)


def compare(stored: dict[str, str], spec: Fingerprinted, what: str) -> None:
    """Refuse state that a different query wrote, unless the difference cannot lose a result."""
    current = spec.fingerprint()
    changed = [
        name
        # In both directions: what only one of them knows is a difference as well.
        for name in dict.fromkeys((*current, *stored))
        if stored.get(name) != current.get(name)
        and not (name in stored and name in current and spec.allows(name, stored[name]))
    ]
    if changed:
        lines = [
            f"  {name}: was {stored.get(name, 'not known')}, is {current.get(name, 'not known')}"
            for name in changed
        ]
        hint = "put the query back as it was, or start it with a new checkpoint location"
        if changed == ["units"] and "," in stored["units"]:
            # The usual cause: "auto" follows the cores, and this machine has other ones.
            units = stored["units"].replace(",", ", ")
            hint = f"give the units of the checkpoint, JoinOptions(units=({units})), or start it"
            hint += " with a new checkpoint location"
        raise FingerprintError(
            f"{what}: {', '.join(changed)} changed", detail="\n".join(lines), hint=hint
        )

"""The runs of one unit: what is stored, and what a batch adds, merges and drops. No IO."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from thetastream import arrow
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import DropPart, PutPart, Store
from thetastream.index.chain import Run
from thetastream.index.encoding import Int64s
from thetastream.index.layout import Layout, PackLayout, Stored, TupleLayout
from thetastream.index.packing import Links, Packs
from thetastream.index.part import Part, PartMeta, Tuples

_Stored = TypeVar("_Stored", bound=Stored)


class Shelf:
    """The chains of a manifest, with the parts that this batch made."""

    def __init__(
        self, number: int, manifest: Manifest, layouts: Sequence[Layout], store: Store
    ) -> None:
        """`layouts` are those of the manifest's chains."""
        self._number = number
        self._manifest = manifest
        self._layouts = layouts
        self._store = store
        self._fresh: dict[str, Stored] = {}
        self._dropped: list[PartMeta] = []
        self._watermark: int | None = None

    @property
    def made(self) -> Iterable[Stored]:
        """The parts that this batch made and that are still needed."""
        return self._fresh.values()

    def metas(self, chain: int) -> Iterator[PartMeta]:
        """The live parts of a chain."""
        return self._manifest.chains[chain].parts()

    def tuples(self, chain: int, meta: PartMeta) -> Part:
        """A part of a chain of tuples."""
        part = self._part(chain, meta)
        assert isinstance(part, Part)
        return part

    def packs(self, chain: int, meta: PartMeta) -> Packs:
        """A part of a chain of packs."""
        part = self._part(chain, meta)
        assert isinstance(part, Packs)
        return part

    def _part(self, chain: int, meta: PartMeta) -> Stored:
        fresh = self._fresh.get(meta.id)
        return fresh if fresh is not None else self._store.part(meta, self._layouts[chain])

    def expire(self, watermark: int | None) -> None:
        """Drop what nothing to come can match."""
        self._watermark = watermark
        for chain in self._manifest.chains:
            self._dropped += chain.expire(watermark)

    def store(self, chain: int, tuples: Tuples) -> None:
        """Add a run of sorted tuples; nothing is written yet, it may still be merged."""
        layout = self._layouts[chain]
        assert isinstance(layout, TupleLayout)
        time = layout.stream.time
        groups = None if time is None else self._apart(chain, tuples.keys[time])
        for some in [tuples] if groups is None else map(tuples.take, groups):
            self._add(chain, layout.cut(some))

    def pack(self, chain: int, pairs: Links) -> list[Packs]:
        """Add a run of pairs as packs; what came of them."""
        layout = self._layouts[chain]
        assert isinstance(layout, PackLayout)
        latest = layout.latest(pairs)
        groups = self._apart(chain, latest)
        if groups is None:
            return self._add(chain, layout.cut(pairs, latest))
        found = []
        for rows in groups:
            found += self._add(chain, layout.cut(pairs.keep(rows), latest[rows]))
        return found

    def _apart(self, chain: int, times: Int64s) -> list[Int64s] | None:
        return self._manifest.chains[chain].apart(times, self._watermark)

    def _add(self, chain: int, parts: Iterable[_Stored]) -> list[_Stored]:
        made = list(parts)
        self._manifest.chains[chain].insert(self._run(chain, made), self._watermark)
        return made

    def _run(self, chain: int, parts: Iterable[Stored]) -> Run:
        metas = []
        for part in parts:
            name = f"{self._manifest.sequence}-{self._number}-{chain}-{len(self._fresh)}"
            self._fresh[name] = part
            metas.append(
                PartMeta(
                    id=name,
                    rows=len(part),
                    bytes=0,
                    low=part.low,
                    high=part.high,
                    pairs=part.pairs,
                )
            )
        return Run(tuple(metas))

    def merge(self) -> None:
        """Merge the runs that are due."""
        for number, chain in enumerate(self._manifest.chains):
            while (due := chain.merge_due()) is not None:
                sub, runs = due
                parts = self._loaded(number, runs)
                if parts is None:
                    # Some tuples are so large that only few fit into memory: nothing is rewritten.
                    chain.replace(sub, runs, Run(tuple(m for run in runs for m in run.parts)))
                    continue
                merged = self._run(number, self._layouts[number].merged(parts, self._watermark))
                self._dropped += chain.replace(sub, runs, merged)

    def _loaded(self, chain: int, runs: Iterable[Run]) -> list[Stored] | None:
        """The parts of some runs; None if they are too large to be put together."""
        parts: list[Stored] = []
        size = 0
        for meta in (meta for run in runs for meta in run.parts):
            parts.append(self._part(chain, meta))
            size += parts[-1].nbytes
            if size > arrow.SAFE_BYTES:
                return None
        return parts

    def written(self) -> Iterator[PutPart | DropPart]:
        """Drop what is no longer needed, and write what this batch made and kept."""
        for meta in self._dropped:
            if self._fresh.pop(meta.id, None) is None:
                yield DropPart(meta)
        for chain in self._manifest.chains:
            for sub in chain.subs:
                for position, run in enumerate(sub.runs):
                    if any(meta.id in self._fresh for meta in run.parts):
                        metas = []
                        for meta in run.parts:
                            if meta.id in self._fresh:
                                put = _put(meta, self._fresh[meta.id])
                                yield put
                                meta = put.meta
                            metas.append(meta)
                        sub.runs[position] = Run(tuple(metas))


def _put(meta: PartMeta, part: Stored) -> PutPart:
    data = part.to_bytes(compress=True)
    checksum = zlib.crc32(data)
    final = replace(meta, id=f"{meta.id}-{checksum:08x}", bytes=data.size, checksum=checksum)
    return PutPart(final, data, part)

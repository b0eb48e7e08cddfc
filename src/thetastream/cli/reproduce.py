"""`thetastream reproduce`: a figure of a paper, run again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from thetastream.errors import JobError
from thetastream.papers import catalogue, record
from thetastream.papers.figure import Figure


def reproduce(chosen: argparse.Namespace) -> int:
    """Runs what was asked for."""
    if chosen.list:
        for paper in catalogue.PAPERS:
            print(paper.title)
            for figure in paper.figures:
                print(f"  {figure.name:<18} {figure.number}: {figure.title}")
        return 0
    if bool(chosen.names) == chosen.all:
        raise JobError(
            "name the figures to run, or give --all", hint="thetastream reproduce --list names them"
        )
    known = catalogue.figures()
    named = [figure for one in chosen.names for figure in catalogue.find(one)]
    wanted = list(known.values()) if chosen.all else named
    out: Path | None = chosen.out
    for number, figure in enumerate(wanted, 1):
        if chosen.all:
            _tell(number, len(wanted), figure)
        _run(figure, out, quick=chosen.quick, as_json=chosen.json)
    if out is not None:
        record.write_pages(out, catalogue.PAPERS)
    return 0


def _run(figure: Figure, out: Path | None, *, quick: bool, as_json: bool) -> None:
    started = time.monotonic()
    outcome = figure.run(quick)
    kept = record.record(figure, outcome, seconds=time.monotonic() - started, quick=quick)
    print(json.dumps(kept) if as_json else record.text(figure, outcome), flush=True)
    if out is None:
        return
    try:
        files = record.write(out, figure, outcome, kept)
    except OSError as error:
        raise JobError(
            f"{out} cannot be written: {error.strerror or error}", hint="choose another folder"
        ) from None
    if not as_json:
        print(f"  {', '.join(str(file) for file in files)}", flush=True)


def _tell(number: int, of: int, figure: Figure) -> None:
    """A bar that grows, on the terminal only."""
    if sys.stderr.isatty():
        done = round(20 * (number - 1) / of)
        bar = "█" * done + "░" * (20 - done)
        print(f"\r{bar} {number}/{of} {figure.name:<20}", end="\r", file=sys.stderr, flush=True)

"""`thetastream control`: the routing of a query that runs anywhere, without starting Spark.

Exit codes are those of the other commands. A request that cannot be met is 2, like any wrong
argument; a directory that cannot be used is 4, like a checkpoint of another query; a query that
does not answer in time is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TextIO

from thetastream.cli.completion import folder
from thetastream.errors import ControlTimeoutError, OptionError, RequestError

if TYPE_CHECKING:
    from thetastream.api.control import Change, Control, Status

DONE, LATE, WRONG = 0, 1, 2
DRAINS = ("auto", "expire", "move")
INTERVAL = 1.0
"""Seconds between two looks at a directory."""
MOST_GROUPS = 1_000_000
"""Groups that a request may name; a join has far fewer."""
_EPILOG = """\
examples:
  thetastream control /var/lib/rides status
  thetastream control /var/lib/rides scale 4 --why "Friday evening"
  thetastream control /var/lib/rides scale orders=4 rides=2
  thetastream control /var/lib/rides move 12 13 100-199 --to 3
  thetastream control /var/lib/rides heat 4711 --stream orders --units 4
  thetastream control /var/lib/rides watch --until-settled

exit codes: 0 done; 1 the query did not answer, or the change was not done, in time; 2 the command
line is wrong, or the request was refused; 3 a package is missing; 4 the directory is not a control
directory, or cannot be used
"""


def add_parser(commands: Any) -> None:
    """Adds the command with its actions."""
    about = "show and change the routing of a running join"
    top = commands.add_parser(
        "control",
        help=about,
        description="Show and change the routing of a running join, by its control directory."
        " Spark is not needed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "path", type=folder, metavar="PATH", help="the control directory: a path, or a URI"
    )
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    status = actions.add_parser("status", help="units, groups and the change that is under way")
    history = actions.add_parser("history", help="every change so far")
    for shown in (status, history):
        shown.add_argument("--plot", type=Path, metavar="FILE", help="also draw a .svg or .png")
    scale = actions.add_parser("scale", help="ask for more or fewer units")
    scale.add_argument(
        "units",
        nargs="+",
        metavar="UNITS",
        help="a number for all streams, or orders=4 rides=2 for some of them",
    )
    scale.add_argument(
        "--subgroup", type=int, metavar="NUMBER", help="of ContRand's subgroups, only this one"
    )
    move = actions.add_parser("move", help="ask for groups to be held by another unit")
    move.add_argument(
        "groups", nargs="+", metavar="GROUPS", help="numbers of groups, such as 12 13 100-199"
    )
    move.add_argument("--to", type=int, required=True, metavar="UNIT", help="the unit")
    move.add_argument("--stream", metavar="NAME", help="move the groups of this stream only")
    heat = actions.add_parser("heat", help="ask for a key to be split over several units")
    heat.add_argument("key", metavar="KEY", help="its value; of a hash, its code")
    heat.add_argument(
        "--stream", required=True, metavar="NAME", help="the stream in which it is frequent"
    )
    heat.add_argument(
        "--units", type=int, default=2, metavar="NUMBER", help="how many units (default: 2)"
    )
    heat.add_argument(
        "--join", type=int, default=0, metavar="NUMBER", help="the join of a tree (default: 0)"
    )
    cool = actions.add_parser("cool", help="ask for a hot key to be like any other again")
    cool.add_argument("key", metavar="KEY", help="as the status shows it, or its code")
    cool.add_argument("--join", type=int, metavar="NUMBER", help="the join of a tree")
    for asks in (scale, move):
        asks.add_argument(
            "--drain",
            choices=DRAINS,
            default="auto",
            help="leave stored rows until they expire, move them, or choose (default: auto)",
        )
        asks.add_argument("--why", default="", metavar="TEXT", help="a reason, for the history")
    for asks in (scale, move, heat, cool):
        asks.add_argument(
            "--no-wait", action="store_true", help="do not wait for the query's answer"
        )
        asks.add_argument(
            "--timeout",
            type=float,
            default=60.0,
            metavar="SECONDS",
            help="how long to wait for the answer (default: 60)",
        )
    watch = actions.add_parser("watch", help="show the status until Ctrl-C")
    watch.add_argument(
        "--until-settled", action="store_true", help="end when no change is under way"
    )
    watch.add_argument(
        "--interval",
        type=float,
        default=INTERVAL,
        metavar="SECONDS",
        help=f"time between two looks (default: {INTERVAL:g})",
    )
    watch.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give up after this time, with exit code 1"
    )
    for action in (status, scale, move, heat, cool, history, watch):
        action.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(chosen: argparse.Namespace) -> int:
    """Carries out an action; the exit code."""
    from thetastream.api.control import Control

    try:
        control = Control(chosen.path)
        if chosen.action in ("status", "history"):
            return _show(control, chosen)
        if chosen.action == "watch":
            return _watch(control, chosen, sys.stdout)
        return (_ask_keys if chosen.action in ("heat", "cool") else _ask)(control, chosen)
    except RequestError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    except ControlTimeoutError as error:
        print(f"error: {error}", file=sys.stderr)
        return LATE


# -- to look ------------------------------------------------------------------------------------


def _show(control: Control, chosen: argparse.Namespace) -> int:
    found = control.status() if chosen.action == "status" else control.history()
    if chosen.json:
        if isinstance(found, list):
            _print_json({"path": control.path, "changes": [change_json(one) for one in found]})
        else:
            _print_json(status_json(found, samples=True))
    else:
        print(found)
    if chosen.plot is not None:
        _draw(found.plot(), chosen.plot)
    return DONE


def _draw(figure: Any, file: Path) -> None:
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{file} cannot be written: {str(error).splitlines()[0]}",
            hint="give a file that ends with .svg, .png or .pdf, in a folder that exists",
        ) from None


def _watch(control: Control, chosen: argparse.Namespace, out: TextIO) -> int:
    end = None if chosen.timeout is None else monotonic() + chosen.timeout
    view = _best_view(out, as_json=chosen.json)
    try:
        with view:
            while True:
                status = control.status()
                view.show(status)
                if chosen.until_settled and status.settled:
                    return DONE
                if end is not None and monotonic() > end:
                    break
                sleep(max(chosen.interval, 0.0))
    except KeyboardInterrupt:
        return DONE
    if not chosen.until_settled:
        return DONE
    raise ControlTimeoutError(
        f"change {status.change} is not done after {chosen.timeout:g} s",
        detail=f"  {status.rest}",
        hint="a change goes on with each batch, and drains as the window passes; wait longer, or"
        " check whether the query is still running",
    )


class _Lines(nullcontext[None]):
    """One line whenever something has changed; as JSON, an object."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        super().__init__()
        self._out = out
        self._as_json = as_json
        self._last = ""

    def show(self, status: Status) -> None:
        from thetastream.api.control_text import status_line

        text = json.dumps(status_json(status)) if self._as_json else status_line(status)
        if text != self._last:
            print(text, file=self._out, flush=True)
        self._last = text


class _Redrawn(AbstractContextManager["_Redrawn"]):
    """The whole status, redrawn in place by rich."""

    def __init__(self, live: Any, text: Any) -> None:
        self._live = live
        self._text = text

    def show(self, status: Status) -> None:
        self._live.update(self._text(str(status)), refresh=True)

    def __enter__(self) -> _Redrawn:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()


def _best_view(out: TextIO, *, as_json: bool) -> _Lines | _Redrawn:
    """A redrawn status in a terminal, if rich is installed; lines anywhere else."""
    if as_json or not out.isatty():
        return _Lines(out, as_json=as_json)
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return _Lines(out, as_json=False)
    live = Live(console=Console(file=out), auto_refresh=False, vertical_overflow="crop")
    return _Redrawn(live, Text)


# -- to ask -------------------------------------------------------------------------------------


def _ask(control: Control, chosen: argparse.Namespace) -> int:
    wait = None if chosen.no_wait else chosen.timeout
    if chosen.action == "scale":
        change = control.scale(
            units_in(chosen.units),
            subgroup=chosen.subgroup,
            drain=chosen.drain,
            why=chosen.why,
            wait=wait,
        )
    else:
        change = control.move(
            list(groups_in(chosen.groups)),
            chosen.to,
            stream=chosen.stream,
            drain=chosen.drain,
            why=chosen.why,
            wait=wait,
        )
    state = "asked" if wait is None else "started" if change else "nothing"
    if chosen.json:
        _print_json({"path": control.path, "state": state, "change": change or None})
    elif state == "asked":
        print("the request is written; the query looks at it after its next batch")
    elif state == "nothing":
        print("there is nothing to change: the routing is so already")
    else:
        print(f"change {change} has begun; watch --until-settled shows how far it has come")
    return DONE


def _ask_keys(control: Control, chosen: argparse.Namespace) -> int:
    wait = None if chosen.no_wait else chosen.timeout
    if chosen.action == "heat":
        control.heat(
            chosen.key,
            stream=chosen.stream,
            units=chosen.units,
            join=chosen.join,
            wait=wait,
        )
    else:
        control.cool(chosen.key, join=chosen.join, wait=wait)
    state = "asked" if wait is None else "started"
    if chosen.json:
        _print_json({"path": control.path, "state": state, "change": None})
    elif state == "asked":
        print("the request is written; the query looks at it after its next batch")
    else:
        print("the query has taken the request; status shows the steps of hot keys")
    return DONE


def units_in(words: list[str]) -> int | dict[str, int]:
    """`4`, or `orders=4 rides=2`."""
    hint = "give a number for all streams, or names with numbers: orders=4 rides=2"
    found: dict[str, int] = {}
    for word in words:
        name, equals, number = word.rpartition("=")
        if not number.isdecimal() or bool(equals) != bool(name) or name in found:
            raise RequestError(f"{word!r} is not a number of units", hint=hint)
        found[name] = int(number)
    if "" not in found:
        return found
    if len(found) > 1:
        raise RequestError("some of the units have the name of a stream, and some not", hint=hint)
    return found[""]


def groups_in(words: list[str]) -> Iterator[int]:
    """`12 13 100-199`, the ends included."""
    for word in words:
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise RequestError(
                f"{word!r} is not a group", hint="give numbers, or ranges such as 100-199"
            )
        start, end = int(first), int(last or first)
        if not start <= end < start + MOST_GROUPS:
            raise RequestError(f"{word!r} is not a range of groups", hint="write 100-199")
        yield from range(start, end + 1)


# -- for machines -------------------------------------------------------------------------------


def status_json(status: Status, *, samples: bool = False) -> dict[str, Any]:
    """A status as JSON takes it, with its samples if wanted; names stay as they are."""
    found: dict[str, Any] = {
        "path": status.path,
        "version": status.version,
        "step": status.step,
        "settled": status.settled,
        "change": status.change,
        "by": status.by,
        "why": status.why,
        "max_units": status.max_units,
        "streams": [
            {
                "stream": one.stream,
                "join": one.join,
                "units": list(one.units),
                "groups": {str(unit): groups for unit, groups in one.groups.items()},
            }
            for one in status.streams
        ],
        "draining": [
            {"join": one.join, "stage": one.stage, "unit": one.unit, "rows": one.rows}
            for one in status.draining
        ],
        "hot": [asdict(one) for one in status.hot],
        "balance": status.balance,
        "waiting": status.waiting,
        "batch": status.batch,
        "at": None if status.at is None else status.at.isoformat(),
        "confirmed": status.confirmed,
        "problem": status.problem,
    }
    if samples:
        found["samples"] = [
            {
                "batch": one.batch,
                "at": one.at,
                "rows_in": one.rows_in,
                "seconds": one.seconds,
                "version": one.version,
                "units": one.units,
                "busy": one.busy,
                "stored_rows": one.stored_rows,
                "stored_bytes": one.stored_bytes,
                "loads": {str(unit): size for unit, size in one.loads.items()},
            }
            for one in status.samples
        ]
    return found


def change_json(change: Change) -> dict[str, Any]:
    """A change as JSON takes it; names stay as they are."""
    return {
        "change": change.change,
        "by": change.by,
        "why": change.why,
        "what": change.what,
        "versions": list(change.versions),
        "begun": change.begun.isoformat(),
        "ended": None if change.ended is None else change.ended.isoformat(),
        "seconds": change.seconds,
        "drained": change.drained,
        "units": change.units,
    }


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value))

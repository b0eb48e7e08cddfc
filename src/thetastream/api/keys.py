"""Hot keys as people name them, and the codes by which the routing tables know them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thetastream.engine.arrivals import printable
from thetastream.errors import OptionError, RequestError
from thetastream.planner.heat import code_of
from thetastream.spec import JoinTree
from thetastream.steering.heat import INSTEAD
from thetastream.steering.policy import SplitKey

LISTED = 10
"""Keys that a refusal names."""


def key_code(tree: JoinTree, key: Any, stream: str, join: int) -> int:
    """The code of a key that a stream of a join may have."""
    if not 0 <= join < len(tree.steps):
        raise RequestError(f"there is no join {join}", hint="joins are counted from 0")
    spec = tree.steps[join].spec
    names = [one.name for one in spec.streams]
    if stream not in names:
        raise RequestError(
            f"there is no stream {stream!r}", hint=f"choose among {', '.join(names)}"
        )
    number = names.index(stream)
    store = next((one for one in spec.stages[0].stores if one.stream == number), None)
    if store is None or store.heated is None:
        raise RequestError("no key of this join can be hot", hint=INSTEAD)
    try:
        return code_of(key, spec.streams[number].keys[store.heated])
    except OptionError as error:
        raise RequestError(error.what, hint=error.hint) from None


def hot_key(hot: Iterable[SplitKey], key: Any, join: int | None) -> SplitKey:
    """The hot key of that name or code, of any join or of one."""
    listed = [one for one in hot if join in (None, one.join)]
    text = printable(str(key))
    # By the value that is shown; a code may be the value of another key.
    found = [one for one in listed if one.shown == text] or [
        one for one in listed if str(one.key) == text
    ]
    if not found:
        known = ", ".join(one.shown or str(one.key) for one in listed[:LISTED])
        raise RequestError(
            f"key {key} is not hot", hint=f"these are: {known}" if known else "no key is"
        )
    if len(found) > 1:
        meant = ", ".join(f"{one.key} in join {one.join}" for one in found)
        raise RequestError(
            f"{len(found)} hot keys are called {key}", hint=f"name its join: {meant}"
        )
    return found[0]

"""Completion scripts for shells, made by shtab from the commands themselves.

A script is made once and then completes without starting Python, so shtab is needed for this one
command only and is an extra.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from thetastream.errors import SettingError

SHELLS = ("bash", "zsh", "fish")


def folder(text: str) -> str:
    """The type of an argument that is a folder or its URI: a Path would not keep the latter."""
    return text


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell: `eval "$(thetastream completion bash)"`."""
    try:
        import shtab
    except ImportError as missing:
        raise SettingError(
            f"thetastream completion needs {missing.name}",
            hint="pip install shtab",
        ) from missing
    for argument in _arguments(parser):
        # shtab reads this from the argument; argparse itself does not know of it.
        if argument.type is Path:
            argument.complete = shtab.FILE  # type: ignore[attr-defined]
        elif argument.type is folder:
            argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(parser, shell) + "\n"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of the parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _arguments(command)

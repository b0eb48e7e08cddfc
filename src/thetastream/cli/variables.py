"""`${NAME}` in a job file: the value comes from the environment, and no message shows it."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable
from urllib.parse import quote

from thetastream.errors import ThetastreamError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHORT = 4
"""Values of fewer characters are looked for as words only: they occur inside of other ones."""

_QUOTED: tuple[Callable[[str], str], ...] = (
    lambda value: repr(value)[1:-1],
    lambda value: json.dumps(value)[1:-1],
    lambda value: quote(value, safe=""),
    quote,
    html.escape,
)
"""What Python, JSON, addresses and HTML make of a value."""


class UnsetVariableError(LookupError):
    """The environment has no variable of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


class Variables:
    """The variables that the texts of a job have named, and their values."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._written: dict[str, str] = {}

    def expand(self, text: str) -> str:
        """The text with the values of its variables; raises UnsetVariableError."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name not in os.environ:
                raise UnsetVariableError(name)
            self._values[name] = os.environ[name]
            return os.environ[name]

        expanded = _VARIABLE.sub(value, text)
        self._written[expanded] = text
        return expanded

    def written(self, text: str) -> str:
        """An expanded text as the job file has it."""
        return self._written.get(text, text)

    def hide(self, text: str) -> str:
        """The text with the names of variables in place of their values.

        Also where a value was quoted on its way.
        """
        forms = {
            form: name
            for name, value in self._values.items()
            for form in (value, *(quoted(value) for quoted in _QUOTED))
            if form.strip()
        }
        # The longest first: a value may be a part of another one.
        for form in sorted(forms, key=len, reverse=True):
            pattern = re.escape(form)
            if len(form) < _SHORT:
                pattern = rf"(?<!\w){pattern}(?!\w)"
            text = re.sub(pattern, f"${{{forms[form]}}}", text)
        return text

    def hidden(self, error: ThetastreamError) -> ThetastreamError:
        """The error, without values in its message."""
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, self.hide(value))
        error.args = (error.what, error.detail, error.hint)
        return error

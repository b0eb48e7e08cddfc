"""Where a site listens: hosts, ports, and what is demanded of those that others can reach."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from thetastream.errors import OptionError
from thetastream.transport.disk import is_private

TOKEN_VARIABLE = "THETASTREAM_SITE_TOKEN"
"""The environment variable that a token is taken from when no file is given."""
SHORTEST_TOKEN = 16
_ADDRESS = re.compile(r"(?:(grpc|grpc\+tcp|grpc\+tls)://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})")
_TOKEN = re.compile(rf"[!-~]{{{SHORTEST_TOKEN},500}}")


@dataclass(frozen=True)
class Address:
    """A host and a port, and whether TLS is spoken there."""

    host: str
    port: int
    tls: bool = False

    @classmethod
    def parse(cls, text: str, what: str = "the address") -> Address:
        """`127.0.0.1:8815`, `grpc+tls://site.example:8815`; raises OptionError for others."""
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found[3]) > 65_535:
            raise OptionError(
                f"{what} {text[:200]!r} is not a host and a port",
                hint='give one such as "127.0.0.1:8815"',
            )
        return cls(found[2].strip("[]"), int(found[3]), found[1] == "grpc+tls")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'grpc+tls' if self.tls else 'grpc'}://{host}:{self.port}"


def read_file(path: Path, what: str) -> bytes:
    """The content of a file; raises OptionError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(
            f"{what} {path} cannot be read: {error.strerror}", hint="check the path"
        ) from None


def read_secret(path: Path, what: str) -> bytes:
    """The content of a file that only its owner can read; raises OptionError for others."""
    try:
        if not is_private(path):
            raise OptionError(
                f"{what} {path} can be read by others", hint=f"chmod 600 {path}, and change it"
            )
    except OSError as error:
        raise OptionError(
            f"{what} {path} cannot be read: {error.strerror}", hint="check the path"
        ) from None
    return read_file(path, what)


def read_token(file: Path | None) -> str | None:
    """The token in a file, or in the environment if no file is given; None if there is neither."""
    if file is not None:
        token = read_secret(file, "the token file").decode("utf-8", "replace").strip()
        where = f"the token file {file}"
    elif TOKEN_VARIABLE in os.environ:
        token, where = os.environ[TOKEN_VARIABLE], f"the variable {TOKEN_VARIABLE}"
    else:
        return None
    if _TOKEN.fullmatch(token) is None:
        raise OptionError(
            f"{where} has no usable token",
            hint=f"make one of at least {SHORTEST_TOKEN} characters: openssl rand -hex 32",
        )
    return token

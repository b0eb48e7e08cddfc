"""The file that says what a site keeps and where it listens.

dir = "/var/lib/rides-site"
listen = "127.0.0.1:8815"
retain = "2 hours"
retain_bytes = "20 GB"
read_token_file = "/etc/rides-site/read-token"
push_token_file = "/etc/rides-site/push-token"

[streams.rides]
time = "pickup_at"
folder = "/data/rides"

[streams.tips]
time = "paid_at"
push = true

[streams.fares]
time = "at"
topic = "fares"
bootstrap = "127.0.0.1:9092"
schema = "at timestamp, zone int, fare double"
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thetastream.durations import parse_duration
from thetastream.errors import OptionError, WindowError, unknown_option
from thetastream.sizes import format_size, parse_size
from thetastream.transport import topicconfig
from thetastream.transport.addresses import Address, read_secret, read_token
from thetastream.transport.messages import Limits
from thetastream.transport.topicconfig import TopicConfig, read_topic

LISTEN = "127.0.0.1:8815"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
"""Names of streams are names of folders, too."""
FREE_BYTES = 256 * 1024**2
"""Bytes of the disk that stay free unless the file says otherwise: room to seal and to forget."""
_KEYS = (
    *("dir", "listen", "retain", "retain_bytes", "free_bytes", "read_token_file"),
    *("push_token_file", "tls_cert", "tls_key", "tls_client_ca", "limits", "streams"),
)
_COPIES = 4
"""Times that a batch may be in memory: `memory_bytes` must have room for the largest."""
_SOURCES = ("folder", "push", "topic")


@dataclass(frozen=True)
class StreamConfig:
    """One stream: its event time, and where its tuples come from."""

    name: str
    time: str
    folder: Path | None = None
    """Where Parquet files appear."""
    topic: TopicConfig | None = None
    """Whose messages are taken in. Without it and a folder, tuples are pushed."""

    @property
    def is_pushed(self) -> bool:
        """Whether programs send its tuples."""
        return self.folder is None and self.topic is None


@dataclass(frozen=True)
class SiteConfig:
    """All that a site needs to know. Secrets are not shown."""

    dir: Path
    address: Address
    streams: Mapping[str, StreamConfig]
    retain: int | None = None
    """Microseconds; None for ever."""
    retain_bytes: int | None = None
    """Of each stream; None for any number."""
    free_bytes: int = FREE_BYTES
    """Bytes of the disk that stay free: below, nothing is taken in."""
    read_token: str | None = field(default=None, repr=False)
    push_token: str | None = field(default=None, repr=False)
    tls_cert: bytes | None = field(default=None, repr=False)
    tls_key: bytes | None = field(default=None, repr=False)
    tls_client_ca: bytes | None = field(default=None, repr=False)
    """Certificates, one of which must have signed that of a client; None if clients need none."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.address.tls != (self.tls_cert is not None and self.tls_key is not None):
            raise OptionError("TLS needs a certificate and its key", hint="give both, or neither")
        if self.tls_client_ca is not None and not self.address.tls:
            raise OptionError(
                "certificates of clients are checked with TLS only",
                hint="add tls_cert and tls_key, or remove tls_client_ca",
            )
        self._check_tokens()
        limits = self.limits
        needed = _COPIES * (limits.batch_bytes + limits.request_bytes)
        if limits.memory_bytes < needed:
            raise OptionError(
                f"memory_bytes of [limits] is {format_size(limits.memory_bytes)}, and one batch of"
                f" batch_bytes may need {format_size(needed)}",
                hint="raise memory_bytes, or lower batch_bytes",
            )

    def _check_tokens(self) -> None:
        tokens = {"read_token_file": self.read_token}
        if self.push_token is not None or any(one.is_pushed for one in self.streams.values()):
            tokens["push_token_file"] = self.push_token
        without = [name for name, token in tokens.items() if token is None]
        if not self.address.is_loopback:
            lacking = [*without, *([] if self.address.tls else ["tls_cert and tls_key"])]
            if lacking:
                raise OptionError(
                    f"{self.address.host} can be reached from other machines, and the site has no"
                    f" {' and no '.join(lacking)}",
                    hint=f"add {', '.join(lacking)}, or listen on 127.0.0.1",
                )
        if without and len(without) < len(tokens):
            raise OptionError(
                f"the site has no {without[0]}, and a token for everything else",
                hint=f"add {without[0]}, or give no tokens",
            )
        if self.push_token is not None and self.push_token == self.read_token:
            raise OptionError(
                "the tokens for reading and for pushing are the same",
                hint="make two: openssl rand -hex 32",
            )


def load(file: Path) -> SiteConfig:
    """The site in a TOML file; raises OptionError with what is wrong and what to do."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OptionError(f"there is no file {file}", hint="give the path of a site's file") from (
            None
        )
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{file} cannot be read: {error}", hint="give a text file") from None
    except tomllib.TOMLDecodeError as error:
        raise OptionError(
            f"{file} is not valid TOML: {error}", hint='write name = "value" lines'
        ) from None
    return _Reader(file, raw).config()


class _Reader:
    """Reads a site's values, and refuses names that it does not know."""

    def __init__(self, file: Path, raw: dict[str, Any]) -> None:
        self._file = file
        self._raw = raw

    def config(self) -> SiteConfig:
        raw = self._raw
        self._no_others(raw, _KEYS, "the site")
        streams = self._table(raw, "streams")
        if not streams:
            raise self._error("the site has no streams", "add a table [streams.rides]")
        cert, key = self._path(raw, "tls_cert"), self._path(raw, "tls_key")
        client_ca = self._path(raw, "tls_client_ca")
        if (cert is None) != (key is None):
            raise self._error(
                f"the site has no {'tls_cert' if cert is None else 'tls_key'}",
                "give both tls_cert and tls_key, or neither",
            )
        folder = self._path(raw, "dir")
        if folder is None:
            raise self._error("the site has no dir", 'add dir = "..."')
        try:
            address = Address.parse(self._text(raw, "listen", "the site", LISTEN), "listen =")
            return SiteConfig(
                dir=folder,
                address=dataclasses.replace(address, tls=cert is not None),
                streams={name: self._stream(name, value) for name, value in streams.items()},
                retain=self._retain(),
                retain_bytes=self._size(raw, "retain_bytes", None),
                free_bytes=self._size(raw, "free_bytes", FREE_BYTES) or 0,
                read_token=self._token("read_token_file"),
                push_token=self._token("push_token_file"),
                tls_cert=None if cert is None else self._bytes(cert),
                tls_key=None if key is None else read_secret(key, "the key"),
                tls_client_ca=None if client_ca is None else self._bytes(client_ca),
                limits=self._limits(),
            )
        except OptionError as error:
            if error.what.startswith(f"{self._file}: "):
                raise
            raise self._error(error.what, error.hint) from None

    def _stream(self, name: str, raw: Any) -> StreamConfig:
        where = f"[streams.{name}]"
        if _NAME.fullmatch(name) is None:
            raise self._error(
                f"{name!r} is not a name for a stream", "use letters, digits and underscores"
            )
        if not isinstance(raw, dict):
            raise self._error(f"{where} is not a table", f"write {where} and push = true")
        more = topicconfig.KEYS if "topic" in raw else ()
        self._no_others(raw, ("time", *_SOURCES, *more), where)
        if "push" in raw and not isinstance(raw["push"], bool):
            raise self._error(f"push of {where} is not true or false", "write push = true")
        given = [source for source in _SOURCES if raw.get(source)]
        if len(given) != 1:
            raise self._error(
                f"{where} says {'nothing' if not given else 'more than once'} about where its"
                " tuples come from",
                'give one of folder = "...", push = true, topic = "..."',
            )
        time = self._text(raw, "time", where)
        if given == ["topic"]:
            folder = self._file.resolve().parent
            return StreamConfig(name, time, topic=read_topic(raw, time, folder, where))
        return StreamConfig(name, time, self._path(raw, "folder", where))

    def _token(self, name: str) -> str | None:
        path = self._path(self._raw, name)
        return None if path is None else read_token(path)

    def _retain(self) -> int | None:
        if "retain" not in self._raw:
            return None
        try:
            return parse_duration(self._raw["retain"], "retain")
        except WindowError as error:
            raise self._error(error.what, error.hint) from None

    def _size(self, raw: dict[str, Any], name: str, default: int | None) -> int | None:
        return parse_size(raw[name], name) if name in raw else default

    def _limits(self) -> Limits:
        raw = self._table(self._raw, "limits")
        known = {item.name for item in dataclasses.fields(Limits)}
        self._no_others(raw, known, "[limits]")
        values = {}
        for name, value in raw.items():
            size = name.endswith("_bytes")
            number = parse_size(value, name) if size else value
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise self._error(
                    f"{name} = {value!r} of [limits] is not a whole number above 0",
                    f"write {name} = {getattr(Limits(), name)}",
                )
            values[name] = number
        return Limits(**values)

    # -- values ---------------------------------------------------------------------------------

    def _error(self, what: str, hint: str) -> OptionError:
        return OptionError(f"{self._file}: {what}", hint=hint)

    def _no_others(self, raw: dict[str, Any], known: Iterable[str], where: str) -> None:
        if wrong := unknown_option(raw, known, where):
            raise self._error(*wrong)

    def _text(self, raw: dict[str, Any], name: str, where: str, *default: str) -> str:
        if name not in raw:
            if default:
                return default[0]
            raise self._error(f"{where} has no {name}", f'add {name} = "..."')
        if not isinstance(raw[name], str):
            raise self._error(f"{name} of {where} is not a string", f'write {name} = "..."')
        return str(raw[name])

    def _table(self, raw: dict[str, Any], name: str) -> dict[str, Any]:
        value = raw.get(name, {})
        if not isinstance(value, dict):
            raise self._error(f"{name} is not a table", f"write [{name}]")
        return value

    def _path(self, raw: dict[str, Any], name: str, where: str = "the site") -> Path | None:
        """Paths are relative to the file's own folder."""
        if name not in raw:
            return None
        return self._file.resolve().parent / self._text(raw, name, where)

    def _bytes(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._error(f"{path} cannot be read: {error.strerror}", "check the path") from (
                None
            )

"""What a site's file says of a topic of Kafka.

[streams.rides]
time = "at"
topic = "rides"
bootstrap = "127.0.0.1:9092"
schema = "at timestamp, zone int, fare double"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from thetastream.errors import OptionError, SiteRequestError
from thetastream.transport.addresses import Address, read_secret
from thetastream.transport.jsonrows import JsonRows
from thetastream.transport.messages import stream_schema

KEYS = (
    "topic",
    "bootstrap",
    "format",
    "schema",
    "starting",
    "group",
    "settings_file",
    "skip",
)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
"""What Kafka allows as the name of a topic."""
_SKIP = re.compile(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_ALLOWED = ("security.", "sasl.", "ssl.", "client.", "socket.")
_FORBIDDEN = ("ssl.engine.", "ssl.providers", "sasl.kerberos.kinit.cmd")
"""These would load a library or run a command."""
_STARTS = ("earliest", "latest")


class Skip(NamedTuple):
    """Offsets of a partition; what of them is unreadable or gone may be left out."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic, how its brokers are reached, and how its messages are read."""

    topic: str
    bootstrap: str
    rows: JsonRows
    latest: bool = False
    """Whether messages from before the first start are left alone."""
    group: str = "thetastream"
    """For brokers that allow some groups only; nothing is committed in its name."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    skip: tuple[Skip, ...] = ()


def read_topic(raw: Mapping[str, Any], time: str, folder: Path, where: str) -> TopicConfig:
    """The topic in a stream's table; raises OptionError with what is wrong and what to do."""
    topic = _text(raw, "topic", where)
    if _NAME.fullmatch(topic) is None or topic in (".", ".."):
        raise OptionError(
            f"topic of {where} is not the name of one topic",
            hint="use letters, digits, dots, underscores and hyphens",
        )
    if _text(raw, "format", where, "json") != "json":
        raise OptionError(f"format of {where} is not json", hint='write format = "json"')
    starting = _text(raw, "starting", where, "earliest")
    if starting not in _STARTS:
        raise OptionError(
            f"starting of {where} is neither earliest nor latest", hint='write "earliest"'
        )
    group = _text(raw, "group", where, "thetastream")
    if not 0 < len(group) <= 249 or not group.isprintable():
        raise OptionError(f"group of {where} is not a name", hint='write group = "thetastream"')
    settings: dict[str, str] = {}
    if "settings_file" in raw:
        settings = _settings(folder / _text(raw, "settings_file", where))
    return TopicConfig(
        topic=topic,
        bootstrap=_bootstrap(_text(raw, "bootstrap", where), settings, where),
        rows=_rows(_text(raw, "schema", where), time, where),
        latest=starting == "latest",
        group=group,
        settings=settings,
        skip=_skips(raw.get("skip", []), where),
    )


def _text(raw: Mapping[str, Any], name: str, where: str, *default: str) -> str:
    if name not in raw:
        if default:
            return default[0]
        raise OptionError(f"{where} has no {name}", hint=f'add {name} = "..."')
    value = raw[name]
    if not isinstance(value, str):
        raise OptionError(f"{name} of {where} is not a string", hint=f'write {name} = "..."')
    return value


def _rows(text: str, time: str, where: str) -> JsonRows:
    try:
        rows = JsonRows(text, time)
        stream_schema(rows.schema)
    except (OptionError, SiteRequestError) as error:
        raise OptionError(f"{where}: {error.what}", hint=error.hint) from None
    return rows


def _bootstrap(text: str, settings: Mapping[str, str], where: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    brokers = [Address.parse(part, f"bootstrap of {where}:") for part in parts]
    if any("://" in part for part in parts):
        raise OptionError(
            f"bootstrap of {where} is not a host and a port", hint='write "127.0.0.1:9092"'
        )
    far = next((broker.host for broker in brokers if not broker.is_loopback), None)
    if far is not None and "security.protocol" not in settings:
        raise OptionError(
            f"{far} of {where} is another machine, and nothing says how it is spoken to",
            hint="name a settings_file with a line such as security.protocol=SASL_SSL",
        )
    return ",".join(parts)


def _settings(path: Path) -> dict[str, str]:
    """Lines of `name=value`; an error never shows a value."""
    text = read_secret(path, "the settings file").decode("utf-8", "replace")
    found: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not re.fullmatch(r"[a-z][a-z0-9._]*", name):
            raise OptionError(
                f"line {number} of {path} is not a setting", hint="write name=value lines"
            )
        if not name.startswith(_ALLOWED) or name.startswith(_FORBIDDEN):
            raise OptionError(
                f"{path} has the setting {name}, which is not one for a connection",
                hint=f"use settings that begin with {', '.join(_ALLOWED)}; not those that load or"
                " run something",
            )
        if name in found:
            raise OptionError(f"{path} has the setting {name} twice", hint="keep one of them")
        found[name] = value
    return found


def _skips(raw: Any, where: str) -> tuple[Skip, ...]:
    wrong = OptionError(
        f"skip of {where} is not a list of partitions and offsets",
        hint='write skip = ["0:1041", "2:17-99"]',
    )
    if not isinstance(raw, list):
        raise wrong
    skips = []
    for one in raw:
        found = _SKIP.fullmatch(one) if isinstance(one, str) else None
        if found is None:
            raise wrong
        skip = Skip(int(found[1]), int(found[2]), int(found[3] or found[2]))
        if skip.last < skip.first:
            raise wrong
        skips.append(skip)
    return tuple(skips)

"""`thetastream site`: keeps the tuples of remote sources, and serves them; Spark is not needed.

Exit codes are those of the other commands: 1 a site that does not answer or reports a problem, 2 a
wrong argument, file or token, 4 a folder that is in use or damaged.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thetastream.errors import (
    ForgottenError,
    OptionError,
    SiteDataError,
    SiteError,
    SiteRequestError,
    SiteUnreachableError,
)
from thetastream.sizes import format_size

if TYPE_CHECKING:
    from thetastream.transport.client import SiteClient

DONE, FAILED, WRONG, DAMAGED = 0, 1, 2, 4
GRACE = 5.0
"""Seconds that running requests have to end when a site is stopped."""
PATIENCE = 10.0
"""Seconds for which a site that does not answer is asked again."""
_EPILOG = """\
A site's file names its folder, its address and its streams:

  dir = "site"
  listen = "127.0.0.1:8815"
  retain = "2 hours"
  [streams.rides]
  time = "pickup_at"
  folder = "rides"
  [streams.tips]
  time = "paid_at"
  push = true
  [streams.fares]
  time = "at"
  topic = "fares"
  bootstrap = "127.0.0.1:9092"
  schema = "at timestamp, zone int, fare double"

A site has one token for reading and one for pushing, in files that only their owner can read. An
address that other machines can reach needs read_token_file, push_token_file, tls_cert and tls_key;
with tls_client_ca it answers only those who have a certificate. Whoever asks gives a token as a
file, or in the variable THETASTREAM_SITE_TOKEN.

exit codes: 0 done; 1 the site does not answer, or reports a problem; 2 the command line, the file
or the token is wrong; 4 the site's folder is in use or damaged
"""


def add_parser(commands: Any) -> None:
    """Adds the command with its actions."""
    top = commands.add_parser(
        "site",
        help="keep the tuples of remote sources, and serve them",
        description="Keep the tuples of remote sources beside them, and serve them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    serve = actions.add_parser("serve", help="serve a site until it is stopped")
    serve.add_argument("config", type=Path, metavar="CONFIG", help="the site's .toml file")
    for name, about in (
        ("status", "streams, numbers and files of a site"),
        ("health", "whether a site answers and works; see the exit code"),
    ):
        asks = actions.add_parser(name, help=about)
        asks.add_argument(
            "site", metavar="SITE", help="its address, 127.0.0.1:8815, or its .toml file"
        )
        asks.add_argument("--token-file", type=Path, metavar="FILE", help="a token of the site")
        asks.add_argument(
            "--tls-roots", type=Path, metavar="FILE", help="certificates to trust, as PEM"
        )
        asks.add_argument(
            "--tls-cert", type=Path, metavar="FILE", help="the certificate of whoever asks, as PEM"
        )
        asks.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
        asks.add_argument(
            "--timeout",
            type=float,
            default=PATIENCE,
            metavar="SECONDS",
            help=f"how long to ask again (default: {PATIENCE:g})",
        )
        asks.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(chosen: argparse.Namespace) -> int:
    """Carries out an action; the exit code."""
    try:
        if chosen.action == "serve":
            return _serve(chosen.config)
        with _client(chosen) as client:
            return _status(client, chosen) if chosen.action == "status" else _health(client, chosen)
    except SiteError as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, SiteUnreachableError):
            return FAILED
        return WRONG if isinstance(error, SiteRequestError | ForgottenError) else DAMAGED


# -- to serve -------------------------------------------------------------------------------------


def _serve(file: Path) -> int:
    from thetastream.transport.config import load
    from thetastream.transport.site import Site

    try:
        from thetastream.transport.service import SiteService
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise OptionError(
            "the server of a site needs grpcio, which is not installed",
            hint="pip install grpcio",
        ) from None

    config = load(file)
    # Whatever is written from here on is the owner's only.
    os.umask(0o077)
    site = Site(config)
    try:
        service = SiteService(site)
    except OptionError:
        site.close()
        raise
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    site.start()
    address = service.address
    names = ", ".join(config.streams)
    print(f"serving {names} on {address}; Ctrl-C stops", file=sys.stderr, flush=True)
    # In steps: a wait without end would keep a signal from being seen.
    while not ending.wait(0.2):
        pass
    print("stopping ...", file=sys.stderr, flush=True)
    # Everything is durable already, so nobody has to wait for a reader that has gone silent.
    service.shutdown(GRACE)
    site.close()
    return DONE


# -- to look --------------------------------------------------------------------------------------


def _client(chosen: argparse.Namespace) -> SiteClient:
    from thetastream.transport.addresses import read_file, read_secret, read_token
    from thetastream.transport.client import SiteClient
    from thetastream.transport.config import load

    roots, cert = (
        None if path is None else read_file(path, "the certificates")
        for path in (chosen.tls_roots, chosen.tls_cert)
    )
    if chosen.site.endswith(".toml"):
        config = load(Path(chosen.site))
        address, token = str(config.address), config.read_token
        roots = roots or config.tls_cert
    else:
        address, token = chosen.site, None
    if token is None or chosen.token_file is not None:
        token = read_token(chosen.token_file)
    return SiteClient(
        address,
        token=token,
        tls_roots=roots,
        tls_cert=cert,
        tls_key=None if chosen.tls_key is None else read_secret(chosen.tls_key, "the key"),
        patience=chosen.timeout,
        stall=min(chosen.timeout, PATIENCE),
    )


def _status(client: SiteClient, chosen: argparse.Namespace) -> int:
    found = client.status()
    if chosen.json:
        print(json.dumps(found))
    else:
        try:
            text = status_text(str(client.address), found)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SiteDataError(
                f"{client.address} does not answer as a site does",
                hint="check the address, and whether the site is of the same release",
            ) from None
        # Names of files could hold what a terminal obeys.
        print("".join(char if char.isprintable() or char == "\n" else " " for char in text))
    return DONE


def status_text(address: str, found: dict[str, Any]) -> str:
    """A status for people."""
    lines = [f"site {address}: {found['problem'] or 'works'}, up {found['seconds']:.0f} s"]
    for name, one in found["streams"].items():
        rows = one["next"] - one["first"]
        lines.append(
            f"  {name}: {rows:,} tuples, numbers {one['first']:,} to {one['next']:,};"
            f" {one['files']:,} files, {format_size(one['bytes'])}; from {one['source']}"
        )
        for file, why in one["refused"].items():
            text = str(why).splitlines()[0]
            lines.append(f"    left out: {file}: {text}")
    return "\n".join(lines)


def _health(client: SiteClient, chosen: argparse.Namespace) -> int:
    problem = client.health()
    if chosen.json:
        print(json.dumps({"problem": problem}))
    else:
        print(problem or "the site works")
    return FAILED if problem else DONE

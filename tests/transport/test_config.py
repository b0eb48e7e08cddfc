"""A site's file: what it says, and what is refused before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from thetastream.errors import OptionError
from thetastream.transport.addresses import TOKEN_VARIABLE, Address, read_token
from thetastream.transport.config import SiteConfig, load

TOKEN = "a-token-of-32-characters-0123456"
PUSH_TOKEN = "another-token-of-32-characters-01"
STREAM = '[streams.rides]\ntime = "at"\npush = true\n'


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def write(folder: Path, text: str) -> Path:
    file = folder / "site.toml"
    file.write_text(text)
    return file


def secret(path: Path, text: str = TOKEN) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    secret(tmp_path / "token", f"{TOKEN}\n")
    secret(tmp_path / "push", PUSH_TOKEN)
    secret(tmp_path / "key")
    (tmp_path / "cert").write_text("c")
    (tmp_path / "ca").write_text("d")
    config = load(
        write(
            tmp_path,
            'dir = "site"\nlisten = "0.0.0.0:9000"\nretain = "2 hours"\n'
            'retain_bytes = "20 GB"\nfree_bytes = 0\n'
            'read_token_file = "token"\npush_token_file = "push"\n'
            'tls_cert = "cert"\ntls_key = "key"\ntls_client_ca = "ca"\n'
            '[limits]\nrequests = 4\nbatch_bytes = "1 MB"\n'
            '[streams.rides]\ntime = "at"\nfolder = "in"\n'
            '[streams.tips]\ntime = "t"\npush = true\n',
        )
    )
    assert config.dir == tmp_path / "site"
    assert config.address == Address("0.0.0.0", 9000, tls=True)
    assert config.retain == 7_200_000_000
    assert (config.retain_bytes, config.free_bytes) == (20 * 1024**3, 0)
    assert (config.read_token, config.push_token) == (TOKEN, PUSH_TOKEN)
    assert config.tls_client_ca == b"d"
    assert (config.limits.requests, config.limits.batch_bytes) == (4, 1024**2)
    assert config.streams["rides"].folder == tmp_path / "in"
    assert config.streams["tips"].folder is None
    assert TOKEN not in repr(config)
    assert PUSH_TOKEN not in repr(config)


def test_the_least_that_is_needed(tmp_path: Path) -> None:
    config = load(write(tmp_path, f'dir = "site"\n{STREAM}'))
    assert str(config.address) == "grpc://127.0.0.1:8815"
    assert (config.retain_bytes, config.free_bytes) == (None, 256 * 1024**2)
    assert (config.retain, config.read_token, config.push_token) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("dir = ", "not valid TOML"),
        (STREAM, "has no dir"),
        ('dir = "s"', "has no streams"),
        (f'dir = "s"\nretian = "1 hour"\n{STREAM}', "did you mean 'retain'"),
        (f'dir = "s"\nretain = "1 month"\n{STREAM}', "no fixed length"),
        (f'dir = "s"\nretain = 5\n{STREAM}', "no unit of time"),
        (f'dir = "s"\nretain_bytes = "much"\n{STREAM}', "is not a size"),
        (f'dir = "s"\nfree_bytes = -1\n{STREAM}', "is not a size"),
        (f'dir = "s"\nlisten = "8815"\n{STREAM}', "not a host and a port"),
        (f'dir = "s"\nlisten = "127.0.0.1:99999"\n{STREAM}', "not a host and a port"),
        (f'dir = "s"\ntls_cert = "c"\n{STREAM}', "has no tls_key"),
        (f'dir = "s"\nread_token_file = "nowhere"\n{STREAM}', "cannot be read"),
        (f'dir = "s"\ntoken_file = "t"\n{STREAM}', "read_token_file"),
        (f'dir = "s"\ntls_client_ca = "site.toml"\n{STREAM}', "with TLS only"),
        (f'dir = "s"\n[limits]\nmemory_bytes = "100 MB"\n{STREAM}', "lower batch_bytes"),
        (f'dir = "s"\n[limits]\nrequests = 0\n{STREAM}', "above 0"),
        (f'dir = "s"\n[limits]\nrequest = 1\n{STREAM}', "did you mean 'request"),
        ('dir = "s"\n[streams.rides]\npush = true', "has no time"),
        ('dir = "s"\n[streams.rides]\ntime = "at"', "says nothing about where"),
        (f'dir = "s"\n{STREAM}folder = "in"', "says more than once"),
        ('dir = "s"\n[streams."../x"]\ntime = "at"\npush = true', "not a name for a stream"),
        ('dir = "s"\nstreams = 3', "not a table"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(OptionError, match=word) as error:
        load(write(tmp_path, text))
    assert str(error.value).startswith(f"{tmp_path / 'site.toml'}: ") or "TOML" in word
    assert error.value.hint


TOPIC = """dir = "s"
[streams.rides]
time = "at"
topic = "rides"
bootstrap = "127.0.0.1:9092"
schema = "at timestamp, zone int"
"""


def test_a_topic(tmp_path: Path) -> None:
    topic = load(write(tmp_path, TOPIC)).streams["rides"].topic
    assert topic is not None
    assert (topic.topic, topic.bootstrap, topic.latest) == ("rides", "127.0.0.1:9092", False)
    assert topic.rows.schema.names == ["at", "zone"]
    secret(tmp_path / "kafka", "# for rides\nsecurity.protocol=SASL_SSL\nsasl.password = a=b\n")
    more = TOPIC.replace("127.0.0.1:9092", "b1.example:9092, b2.example:9092")
    more += 'settings_file = "kafka"\nstarting = "latest"\ngroup = "g"\nformat = "json"\n'
    more += 'skip = ["0:17", "1:2-9"]\n'
    config = load(write(tmp_path, more))
    topic = config.streams["rides"].topic
    assert topic is not None
    assert topic.bootstrap == "b1.example:9092,b2.example:9092"
    assert topic.settings == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    assert (topic.latest, topic.group, topic.skip) == (True, "g", ((0, 17, 17), (1, 2, 9)))
    assert "a=b" not in repr(config)


def test_the_topic_in_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "sites.md"
    blocks = page.read_text(encoding="utf-8").split("```")
    (text,) = (one for one in blocks if one.startswith("toml\n# file: topic.toml"))
    (lines,) = (one for one in blocks if one.startswith("\nsecurity.protocol="))
    secret(tmp_path / "kafka.conf", lines)
    text = text.removeprefix("toml").replace("# settings_file", "settings_file")
    topic = load(write(tmp_path, text)).streams["fares"].topic
    assert topic is not None
    assert topic.rows.schema.names == ["at", "zone", "fare", "note"]
    assert topic.settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert len(topic.settings) == 5


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"rides"', '"a b"', "not the name of one topic"),
        ('topic = "rides"', "topic = 3", "not a string"),
        ("bootstrap", "bootstraps", "did you mean 'bootstrap'"),
        ('bootstrap = "127.0.0.1:9092"', "", "has no bootstrap"),
        ("127.0.0.1:9092", "127.0.0.1", "not a host and a port"),
        ("127.0.0.1:9092", "grpc://127.0.0.1:9092", "not a host and a port"),
        ("127.0.0.1:9092", "127.0.0.1:1,b.example:9092", "b.example .* is another machine"),
        ("schema =", "format =", "is not json"),
        ("at timestamp", "at bigint", "no timestamp 'at'"),
        ("zone int", "zone", "cannot be read at 'zone'"),
        ("zone int", "zone int,", "ends with a comma"),
        ("zone int", "zone array<int>", "cannot be read at"),
        ("zone int", "zone interval", "has the type interval"),
        ("zone int", "zone int(3)", "has the type int"),
        ("zone int", "zone decimal(99)", "has the type decimal"),
        ("zone int", "zone decimal(3, 4)", "has the type decimal"),
        ("zone int", "_number int", "cannot be called"),
        ("zone int", "at int", "two columns"),
        ("schema", 'starting = "now"\nschema', "neither earliest nor latest"),
        ("schema", 'group = ""\nschema', "not a name"),
        ("schema", 'settings_file = "nowhere"\nschema', "cannot be read"),
        ("schema", 'skip = "0:1"\nschema', "not a list of partitions"),
        ("schema", 'skip = ["0:9-1"]\nschema', "not a list of partitions"),
        ("schema", "skip = [1]\nschema", "not a list of partitions"),
        ("schema", "push = true\nschema", "says more than once"),
        ('topic = "rides"', "push = true", "has no option 'bootstrap'"),
    ],
)
def test_mistakes_about_a_topic(tmp_path: Path, old: str, new: str, word: str) -> None:
    assert old in TOPIC
    text = TOPIC.replace(
        f"topic = {old}" if old == '"rides"' else old, f"topic = {new}" if old == '"rides"' else new
    )
    with pytest.raises(OptionError, match=word) as error:
        load(write(tmp_path, text))
    assert str(error.value).startswith(f"{tmp_path / 'site.toml'}: ")
    assert error.value.hint


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sasl.password", "line 1 of .* is not a setting"),
        ("Sasl.Password=hunter22", "line 1 of .* is not a setting"),
        ("bootstrap.servers=hunter22", "not one for a connection"),
        ("plugin.library.paths=hunter22", "not one for a connection"),
        ("ssl.engine.location=hunter22", "not one for a connection"),
        ("sasl.kerberos.kinit.cmd=hunter22", "not one for a connection"),
        ("sasl.password=hunter22\nsasl.password=hunter22", "twice"),
    ],
)
def test_mistakes_in_the_settings_of_a_topic(tmp_path: Path, text: str, word: str) -> None:
    secret(tmp_path / "kafka", text)
    file = write(tmp_path, f'{TOPIC}settings_file = "kafka"\n')
    with pytest.raises(OptionError, match=word) as error:
        load(file)
    assert "hunter22" not in str(error.value)
    (tmp_path / "kafka").chmod(0o644)
    with pytest.raises(OptionError, match="can be read by others"):
        load(file)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "[::]", "site.example"])
def test_off_loopback_a_token_and_tls_are_needed(tmp_path: Path, host: str) -> None:
    file = write(tmp_path, f'dir = "s"\nlisten = "{host}:8815"\n{STREAM}')
    with pytest.raises(OptionError, match="no read_token_file and no push_token_file and no tls_"):
        load(file)
    secret(tmp_path / "token")
    secret(tmp_path / "push", PUSH_TOKEN)
    tokens = 'read_token_file = "token"\npush_token_file = "push"\n'
    file = write(tmp_path, f'dir = "s"\nlisten = "{host}:8815"\n{tokens}{STREAM}')
    with pytest.raises(OptionError, match="has no tls_cert and tls_key"):
        load(file)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]"])
def test_on_loopback_they_are_not(tmp_path: Path, host: str) -> None:
    config = load(write(tmp_path, f'dir = "s"\nlisten = "{host}:8815"\n{STREAM}'))
    assert config.address.is_loopback


def test_secrets_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = secret(tmp_path / "token")
    assert read_token(file) == TOKEN
    file.chmod(0o640)
    with pytest.raises(OptionError, match="can be read by others") as error:
        read_token(file)
    assert TOKEN not in str(error.value)


def test_a_token_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert read_token(None) == TOKEN
    # It is a client's: a site with one token for both would not know which.
    assert load(write(tmp_path, f'dir = "site"\n{STREAM}')).read_token is None
    for bad in ("short", "with a space in the middle", "x" * 600):
        monkeypatch.setenv(TOKEN_VARIABLE, bad)
        with pytest.raises(OptionError, match="no usable token") as error:
            read_token(None)
        assert bad not in str(error.value)


def test_one_token_each(tmp_path: Path) -> None:
    secret(tmp_path / "token")
    secret(tmp_path / "same")
    read, push = 'read_token_file = "token"\n', 'push_token_file = "same"\n'
    for lines, word in (
        (read, "has no push_token_file"),
        (push, "has no read_token_file"),
        (read + push, "are the same"),
    ):
        with pytest.raises(OptionError, match=word) as error:
            load(write(tmp_path, f'dir = "s"\n{lines}{STREAM}'))
        assert TOKEN not in str(error.value)
    # Nothing can be pushed here.
    folder = '[streams.rides]\ntime = "at"\nfolder = "in"\n'
    assert load(write(tmp_path, f'dir = "s"\n{read}{folder}')).read_token == TOKEN


def test_a_config_checks_itself() -> None:
    with pytest.raises(OptionError, match="can be reached from other machines"):
        SiteConfig(Path("s"), Address("192.0.2.7", 1), {})

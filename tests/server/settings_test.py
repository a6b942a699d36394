"""Settings: where they come from, which source wins, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from roost import Invalid
from roost.databases.addresses import Address
from roost.server.settings import SETTINGS, Settings, load, reloaded

URL = "sqlite:///app.db"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9998", Address("127.0.0.1", 9998)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
        ("unix:/run/a:b.sock", Address(path="/run/a:b.sock")),
    ],
)
def test_an_address(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "9998", ":9998", "host", "host:", "host:65536", "host:-1", "host:٣", "::1:9998", "[::1]", "[host]:1"),
        *("unix:", "unix:/" + "x" * 103, "unix:/a\0b", "a b:1"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(Invalid):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        *(("127.9.9.9:1", True), ("localhost:1", True), ("[::1]:1", True), ("unix:/x", True)),
        *(("0.0.0.0:1", False), ("[::]:1", False), ("192.0.2.1:1", False), ("[::ffff:192.0.2.1]:1", False)),
    ],
)
def test_what_only_this_machine_reaches(text: str, loopback: bool) -> None:
    assert Address.parse(text).loopback is loopback


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(Invalid, match=r"nowhere\.invalid:1"):
        Address.parse("nowhere.invalid:1").resolve()


def test_a_timeout_that_no_server_takes_is_none() -> None:
    assert load(None, {}, {"timeout": "999999"}).timeout == 999_999
    assert load(None, {}, {"timeout": "1e8"}).timeout == 0


def test_the_later_source_wins(tmp_path: Path) -> None:
    config = tmp_path / "roost.toml"
    config.write_text('url = "sqlite:///file.db"\nworkers = 3\nslow = 0.5\nread = ["127.0.0.1:1", "unix:/run/r"]\n')
    environ = {"ROOST_SERVE_WORKERS": "4", "ROOST_SERVE_SLOW": "0.25", "HOME": "/", "ROOST_TEST_ALL": "1"}
    options = {"workers": "5", "slow": None, "write": None}
    settings = load(str(config), environ, options)
    assert (settings.url, settings.workers, settings.slow) == ("sqlite:///file.db", 5, 0.25)
    assert settings.read == (Address("127.0.0.1", 1), Address(path="/run/r"))
    assert settings.write == (Address("127.0.0.1", 9999),)
    assert load(str(config), {"ROOST_STORE": URL}, {}).url == URL
    assert load(None, {"ROOST_STORE": ""}, {}).url == "sqlite:///roost.db"
    assert load(str(config), {"ROOST_STORE": "sqlite:///e.db"}, {"url": URL}).url == URL


def test_every_setting_can_be_said_in_every_way(tmp_path: Path) -> None:
    words = (
        f"url {URL} read 127.0.0.1:1,unix:/run/r write none workers 7 read_secret r write_secret w tls_cert c.pem "
        "tls_key k.pem tables a,b* http 127.0.0.1:3 slow 0.5 log_values yes max_line 2K max_connections 9 "
        "max_indexes 8 max_unanswered 1MiB max_answer 3M timeout 4 auth_timeout 30 idle 60 auth_delay 0 drain 1.5 "
        "connections 12 memcached 127.0.0.1:4 cache pages memcached_secret me:m memcached_once 60 "
        "console 127.0.0.1:5 console_secret s"
    ).split()
    said = dict(zip(words[::2], words[1::2], strict=True))
    assert said.keys() == SETTINGS.keys()
    config = tmp_path / "roost.toml"
    config.write_text(
        f'url = "{URL}"\nread = ["127.0.0.1:1", "unix:/run/r"]\nwrite = []\nworkers = 7\nread_secret = "r"\n'
        'write_secret = "w"\ntls_cert = "c.pem"\ntls_key = "k.pem"\ntables = ["a", "b*"]\nhttp = "127.0.0.1:3"\n'
        "slow = 0.5\nlog_values = true\nmax_line = 2048\nmax_connections = 9\nmax_indexes = 8\n"
        "max_unanswered = 1_048_576\nmax_answer = 3145728\ntimeout = 4\nauth_timeout = 30\n"
        "idle = 60\nauth_delay = 0\ndrain = 1.5\nconnections = 12\n"
        'memcached = "127.0.0.1:4"\ncache = "pages"\nmemcached_secret = "me:m"\nmemcached_once = 60\n'
        'console = "127.0.0.1:5"\nconsole_secret = "s"\n'
    )
    read = (Address("127.0.0.1", 1), Address(path="/run/r"))
    http = Address("127.0.0.1", 3)
    wanted = Settings(
        *(URL, read, (), 7, "r", "w", "c.pem", "k.pem", ("a", "b*"), http, 0.5, True, 2048, 9, 8, 2**20),
        max_answer=3 * 2**20,
        timeout=4.0,
        auth_timeout=30.0,
        idle=60.0,
        auth_delay=0.0,
        drain=1.5,
        connections=12,
        cache="pages",
        memcached_secret="me:m",
        memcached_once=60.0,
        memcached=(Address("127.0.0.1", 4),),
        console=Address("127.0.0.1", 5),
        console_secret="s",
    )
    assert load(None, {}, said) == wanted
    assert load(None, {f"ROOST_SERVE_{name.upper()}": value for name, value in said.items()}, {}) == wanted
    assert load(str(config), {}, {}) == wanted
    assert Settings.from_json(wanted.to_json()) == wanted


def test_a_secret_comes_from_a_file_without_its_newline(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim \n")
    settings = load(None, {"ROOST_SERVE_READ_SECRET_FILE": str(tmp_path / "secret")}, {"url": URL})
    assert settings.read_secret == "geheim "
    assert settings.secret("read") == b"geheim "
    assert settings.secret("write") is None
    environ = {"ROOST_SERVE_READ_SECRET_FILE": str(tmp_path / "secret")}
    assert load(None, environ, {"url": URL, "read_secret": "said"}).read_secret == "said"
    assert load(None, {**environ, "ROOST_SERVE_READ_SECRET": "both"}, {"url": URL}).read_secret == "both"


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    settings = Settings(URL, read_secret="geheim", write_secret="geheim")
    assert "geheim" not in repr(settings)
    (tmp_path / "secret").write_text("\n")
    with pytest.raises(Invalid) as refused:
        load(None, {}, {"url": URL, "read_secret_file": str(tmp_path / "secret")})
    assert str(refused.value) == "--read-secret-file: a secret is a text of at least one character"
    (tmp_path / "roost.toml").write_text('url = "sqlite:///app.db"\nread_secret = ["geheim"]\n')
    with pytest.raises(Invalid) as refused:
        load(str(tmp_path / "roost.toml"), {}, {})
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ROOST_SERVE_WORKER": "1"}, "ROOST_SERVE_WORKER is not a setting; the nearest is ROOST_SERVE_WORKERS"),
        ({"ROOST_SERVE_WORKERS": "0"}, "workers: '0' is not a whole number of at least 1"),
        ({"ROOST_SERVE_WORKERS": "two"}, "workers: 'two' is not a whole number of at least 1"),
        ({"ROOST_SERVE_MAX_LINE": "1T"}, "max_line: '1T' is not a number of bytes: 1048576, 1024K or 1MiB"),
        ({"ROOST_SERVE_SLOW": "nan"}, "slow: 'nan' is not a number of seconds"),
        ({"ROOST_SERVE_SLOW": "-1"}, "slow: '-1' is not a number of seconds"),
        ({"ROOST_SERVE_LOG_VALUES": "maybe"}, "log_values: 'maybe' is neither true nor false"),
        ({"ROOST_SERVE_TABLES": " , "}, "tables: no table could be opened; '*' allows all of them"),
        (
            {"ROOST_SERVE_READ": "here"},
            r"read: 'here' is not an address: 127.0.0.1:9998, \[::1\]:9998 or unix:/run/roost.sock",
        ),
        ({"ROOST_SERVE_READ": "none", "ROOST_SERVE_WRITE": "none"}, "neither read nor write has an address"),
        ({"ROOST_SERVE_TLS_KEY": "k.pem"}, "tls_key is of no use without tls_cert"),
        ({"ROOST_SERVE_WRITE": "0.0.0.0:1"}, "write 0.0.0.0:1 can be reached from other machines"),
        ({"ROOST_SERVE_READ": "unix:/r,[::]:1"}, r"read \[::\]:1 can be reached from other machines"),
        ({"ROOST_SERVE_URL": "memcached://root:geheim@db"}, "works on sqlite, .* not on memcached:$"),
        ({"ROOST_SERVE_URL": "sqlite://"}, "sqlite:// is in memory"),
        ({"ROOST_SERVE_URL": "sqlite:///a.db?mode=ro"}, "read only: set write = none"),
        ({"ROOST_SERVE_URL": "sqlite:///a.db?sync=1"}, "sync is not an option"),
        ({"ROOST_SERVE_HTTP": "unix:/run/h"}, "http unix:/run/h: /metrics and /healthz take a port"),
        ({"ROOST_SERVE_CONSOLE": "unix:/run/c"}, "console unix:/run/c: the pages take a port"),
        ({"ROOST_SERVE_CONSOLE": "0.0.0.0:8808"}, "console 0.0.0.0:8808 can be reached from other machines"),
        ({"ROOST_SERVE_READ": "127.0.0.1:9999"}, "127.0.0.1:9999 is named twice"),
        ({"ROOST_SERVE_READ": "127.0.0.1:7001,127.0.0.1:7001"}, "127.0.0.1:7001 is named twice"),
        ({"ROOST_SERVE_HTTP": "127.0.0.1:9998"}, "127.0.0.1:9998 is named twice"),
        ({"ROOST_SERVE_CONSOLE": "127.0.0.1:9998"}, "127.0.0.1:9998 is named twice"),
        ({"ROOST_SERVE_READ": "unix:/run/r", "ROOST_SERVE_WRITE": "unix:/run/w,unix:/run/r"}, "unix:/run/r is named "),
    ],
)
def test_what_is_refused_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message.replace("*'", r"\*'")):
        load(None, {"ROOST_STORE": URL, **environ}, {})


def test_several_listeners_may_leave_their_port_to_the_system() -> None:
    settings = Settings(URL, read=(Address("127.0.0.1", 0),) * 2, write=(Address("127.0.0.1", 0),))
    assert len([*settings.read, *settings.write]) == 3


@pytest.mark.parametrize(
    "more",
    [
        *({"write": "0.0.0.0:1", "write_secret": "s"}, {"write": "0.0.0.0:1", "tls_cert": "c.pem"}),
        {"console": "0.0.0.0:8808", "console_secret": "geheim"},
    ],
)
def test_beyond_loopback_with_a_secret_or_tls(more: dict[str, str]) -> None:
    load(None, {}, {"url": URL, **more})


@pytest.mark.parametrize("secret", ["a\tb", "a\nb", "ab\r", "\0", "a\x01"])
def test_f59_a_secret_that_cannot_be_said_is_refused(tmp_path: Path, secret: str) -> None:
    (tmp_path / "secret").write_bytes(f"{secret}\r\r\n".encode())
    for said in ({"write_secret": secret}, {"write_secret_file": str(tmp_path / "secret")}):
        with pytest.raises(Invalid, match="cannot be sent"):
            load(None, {}, said)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('read-secret = "s"', "read-secret is not a setting; the nearest is read_secret"),
        ("[server]\nworkers = 2", "server is not a setting"),
        ("workers = true", "workers: True is not a whole number"),
        ("workers = ", r"roost\.toml is not valid TOML: "),
        ("\xff", r"roost\.toml is not valid TOML: "),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "roost.toml").write_text(content, encoding="latin-1")
    with pytest.raises(Invalid, match=f"roost.toml.*{message}" if "TOML" not in message else message):
        load(str(tmp_path / "roost.toml"), {"ROOST_STORE": URL}, {})
    with pytest.raises(Invalid, match=r"other\.toml cannot be read: No such file"):
        load(str(tmp_path / "other.toml"), {}, {})


def test_tables_are_allowed_by_patterns() -> None:
    settings = Settings(URL, tables=("users", "log_*", "a.b", "*_x_*"))
    allowed = ["users", "USERS", "log_", "log_\n", "a.b", "1_x_2"]
    refused = ["users2", "xusers", "aab", "_x", "", "\u017fusers", "u\u017fers"]
    assert [name for name in [*allowed, *refused] if settings.allows(name)] == allowed
    assert Settings(URL).allows("anything")


def test_what_a_reload_may_change() -> None:
    before = Settings(URL, tls_cert="a.pem")
    after = Settings("sqlite:///other.db", workers=before.workers + 1, read_secret="s", tables=("a",), tls_cert="b.pem")
    settings, fixed = reloaded(before, after)
    assert fixed == ["url", "workers"]
    assert settings == dataclasses.replace(before, read_secret="s", tables=("a",), tls_cert="b.pem")
    assert reloaded(before, Settings(URL)) == (before, ["tls_cert"])
    assert reloaded(before, before) == (before, [])

"""`streamtable store`, on real servers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticsearch import Elasticsearch
from libs.streamtable_cli.tests.bench import Cli, silence
from structlog import reset_defaults

from localstores.redis import RedisServer
from microbatch.stores.redis import RedisDriver
from microbatch.stores.store import RemoteStore
from microbatch.stores.sweep import NOTES_KEY
from microbatch.stores.versions import Ledger, Version, VersionedCell, WriteId, ledger_key


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    silence()
    yield
    reset_defaults()


@pytest.fixture
def cli() -> Cli:
    return Cli("127.0.0.1:9")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


def test_a_check_prints_its_findings_and_fails_only_for_a_problem(cli: Cli, redis: RedisServer) -> None:
    ran = cli("store", "check", redis.url)
    assert ran.code == 0
    assert "set appendonly yes" in ran.out
    ran = cli("store", "check", f"{redis.url}?replicas=1", "--json")
    assert ran.code == 1
    assert {"replicas": "problem", "disk": "warning"}.items() <= {
        each["subject"]: each["level"] for each in ran.json
    }.items()


def test_the_url_may_come_from_the_environment(cli: Cli, redis: RedisServer) -> None:
    assert cli("store", "check", env={"STREAMTABLE_STORE": redis.url}).code == 0
    ran = cli("store", "check")
    assert ran.code == 2
    assert "Missing argument 'URL'" in ran.err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://me:hunter2@h", "no kind of store"),
        ("memory:", "gone with its process"),
        ("redis://", "expected redis"),
    ],
)
@pytest.mark.parametrize(
    "command", [("create",), ("check",), ("sweep", "--tenant", "t")], ids=lambda each: each[0]
)
def test_an_invalid_url_is_a_usage_error_and_is_not_shown(
    cli: Cli, url: str, said: str, command: tuple[str, ...]
) -> None:
    ran = cli("store", *command, url)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "hunter2" not in ran.err


def test_an_unreachable_server_is_not_a_usage_error(cli: Cli) -> None:
    ran = cli("store", "check", "redis://127.0.0.1:1")
    assert (ran.code, ran.out) == (1, "")
    assert "127.0.0.1:1" in ran.err


def test_redis_has_nothing_to_create(cli: Cli, redis: RedisServer) -> None:
    ran = cli("store", "create", redis.url)
    assert (ran.code, ran.err) == (0, "everything is there\n")


@pytest.mark.broker
def test_create_shows_its_plan_and_check_then_finds_no_problem(
    cli: Cli, server_of: Callable[[str], Any]
) -> None:
    server = server_of("elasticsearch")
    url = f"elasticsearch+http://127.0.0.1:{server.port}/by-command?replicas=0&fields=url:keyword"
    assert cli("store", "check", url).code == 1
    ran = cli("store", "create", url, "--dry-run", "--json")
    assert (ran.code, [each["name"] for each in ran.json]) == (0, ["by-command-1"])
    assert cli("store", "check", url).code == 1
    ran = cli("store", "create", url)
    assert ran.code == 0
    assert "by-command-1" in ran.out
    cli("store", "check", url, "--tenant", "t").good()
    assert cli("store", "create", url).err == "everything is there\n"
    with Elasticsearch(server.url) as client:
        client.indices.delete(index="by-command-1")


def test_the_first_sweep_records_rows_and_a_later_one_removes_them(cli: Cli, redis: RedisServer) -> None:
    driver = RedisDriver(redis.url, tenant="t")
    store = RemoteStore(driver)
    ledger = Ledger(3, {2: 5})
    store.put_many({ledger_key(0): ledger.encode()}, ledger.opening)
    gone = VersionedCell(Version(WriteId(2, 5), None), Version(WriteId(1, 1), b"x"), 0)
    store.put_many({b"a": gone.encode()}, WriteId(2, 5).number)
    sweep = ("store", "sweep", redis.url, "--tenant", "t")
    ran = cli(*sweep)
    assert ran.code == 0
    assert "the first can be removed in 1.0 d" in ran.err
    assert store.get(b"a") is not None
    store.put_many({NOTES_KEY: json.dumps([[0, {"0": 3}]]).encode()}, None)  # as if recorded long ago
    assert cli(*sweep, "--dry-run", "--json").json == {
        "deletions": 1,
        "may_go": 1,
        "removed": 0,
        "waits_for": 0,
    }
    assert cli(*sweep, "--json").json == {"deletions": 1, "may_go": 1, "removed": 1, "waits_for": 0}
    assert store.get(b"a") is None
    assert cli(*sweep, "--after", "60").code == 2
    driver.close()


def test_cassandra_is_not_swept(cli: Cli) -> None:
    ran = cli("store", "sweep", "cassandra://h/k/t", "--tenant", "t")
    assert ran.code == 2
    assert "ttl" in ran.err

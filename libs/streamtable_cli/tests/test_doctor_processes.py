"""The findings of `doctor` for the statuses that processes report."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import Cli, World

from contracts.records import PROCESS_STATUS
from streamtable import Avro

pytestmark = pytest.mark.usefixtures("elsewhere")

SCHEMAS = Path(__file__).resolve().parents[3] / "proto" / "avro"
NOW = 2_000_000_000_000
CODEC: Avro[Any] = Avro(PROCESS_STATUS)


def status(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "service": "shop",
        "role": "processor",
        "group": "count",
        "instance": "one",
        "host": "machine",
        "pid": 7,
        "started_at": NOW - 100_000,
        "at": NOW,
        "state": "ready",
    }
    return CODEC.decode(CODEC.encode(known | changes))  # type: ignore[no-any-return]  # with the schema's defaults


def test_processes_that_died_or_failed_are_reported_from_the_topic(cli: Cli, world: World) -> None:
    topic = world.create("status", partitions=1, config={"cleanup.policy": "compact"})
    now = time.time_ns() // 1_000_000
    statuses = {
        b"count/processor/well": status(at=now),
        b"count/processor/dead": status(at=now - 60_000, host="box-2", pid=41),
        b"count/processor/broken": status(at=now - 90_000, state="failed", error="Fenced clicks 3"),
    }
    world.send(topic, *[(key, CODEC.encode(value)) for key, value in statuses.items()])
    world.send(topic, (b"gone", CODEC.encode(status(at=now - 60_000))), (b"gone", None))
    ran = cli("doctor", "--status-topic", topic, "--schemas", str(SCHEMAS), "--over", "0", "--json")
    assert ran.code == 1
    found = {each["subject"]: each for each in ran.json}
    assert "killed" in found["process count/processor/dead"]["advice"]
    assert "process 41 on box-2" in found["process count/processor/dead"]["fact"]
    assert "with Fenced clicks 3" in found["process count/processor/broken"]["fact"]
    assert found["processes"]["fact"] == "1 reports its status"
    assert not {"process gone", "process count/processor/well"} & found.keys()
    blind = cli("doctor", "--status-topic", topic, "--over", "0", "--json")
    (unread,) = [each for each in blind.json if each["subject"] == "processes" and each["level"] != "ok"]
    assert unread["fact"] == f"3 records of {topic} cannot be decoded"
    assert "--schemas" in unread["advice"]


def known_to(schema: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that its schema has; of the records in its lists too."""
    found = {}
    for field in schema["fields"]:
        inner: Any = field["type"]["items"] if isinstance(field["type"], dict) else None
        of_records = isinstance(inner, dict)
        each = value[field["name"]]
        found[field["name"]] = [known_to(inner, one) for one in each] if of_records else each
    return found


@pytest.mark.parametrize(
    "file", sorted((SCHEMAS / "history" / "process_status").glob("*.avsc")), ids=lambda file: file.stem
)
def test_reports_of_earlier_versions_are_judged_too(file: Path, cli: Cli, world: World) -> None:
    schema = json.loads(file.read_text(encoding="utf-8"))
    codec: Avro[Any] = Avro(schema)
    topic = world.create("status", partitions=1, config={"cleanup.policy": "compact"})
    now = time.time_ns() // 1_000_000
    parts = {
        "due": [{"topic": "count-minutes", "partition": 0}],
        "calls": [{"call": "ask"}],
        "copies": [{"table": "users"}],
    }
    for name, at, aborts in ((b"well", now - 1_000, 0), (b"well", now, 2), (b"dead", now - 60_000, 0)):
        report = known_to(schema, status(at=at, aborts=aborts, **parts))
        world.send(topic, (name, codec.encode(report)))
    ran = cli("doctor", "--status-topic", topic, "--schemas", str(SCHEMAS), "--over", "0", "--json")
    found = {each["subject"]: each["fact"] for each in ran.json}
    assert found["processes"] == "1 reports its status"
    assert "has not reported" in found["process dead"]
    assert "aborted 2 commits" in found["process well"]

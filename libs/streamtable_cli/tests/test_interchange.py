"""`streamtable graph show` in the formats of other tools: what they find is what the group reads and writes."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from libs.streamtable_cli.tests.bench import Cli

from streamtable import Avro, Count, Group, Input, Json, Long, Output, Persist, State, Stream, String
from streamtable.graph.group import Join, Lookup
from streamtable_cli.interchange import asyncapi, openlineage

CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "url", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": ["null", "string"], "default": None},
    ],
}
CLICKS: Stream[str, Any] = Stream("shop.clicks", String(), Avro(CLICK))
ALERTS: Stream[str, Any] = Stream("alerts", String(), Json())
COUNTS = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()))


def watch(ctx: Any, click: Any) -> None: ...


WATCH: Group[str, Any] = Group(
    "watch",
    Input(CLICKS, watch),
    Join(COUNTS.table),
    Lookup(Group("users", Input(ALERTS, watch), Persist(Json())).table),
    State("seen", key=String(), value=Json()),
    Output(ALERTS),
)
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def references(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        if "$ref" in found:
            yield found["$ref"]
        for each in found.values():
            yield from references(each)


def test_asyncapi_has_a_channel_for_each_topic_with_the_schema_of_its_records() -> None:
    found = asyncapi([COUNTS, WATCH])
    addresses = {channel["address"] for channel in found["channels"].values()}
    assert addresses == {"shop.clicks", "counts-table", "users-table", "watch-seen", "alerts"}
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", each) for each in (*found["channels"], *found["operations"]))
    message = found["channels"]["shop_2e_clicks"]["messages"]["record"]
    assert message["payload"] == {
        "schemaFormat": "application/vnd.apache.avro;version=1.9.0",
        "schema": CLICK,
    }
    assert message["contentType"] == "application/vnd.apache.avro+binary"
    assert message["bindings"]["kafka"]["key"] == {"type": "string"}
    counts = found["channels"]["counts-table"]["messages"]["record"]
    assert counts["payload"] == {"type": "integer", "format": "int64"}


def test_asyncapi_has_an_operation_for_each_topic_that_a_group_reads_or_writes() -> None:
    found = asyncapi([COUNTS, WATCH])
    actions = {name: each["action"] for name, each in found["operations"].items()}
    assert actions == {
        "counts-reads-shop_2e_clicks": "receive",
        "counts-writes-counts-table": "send",
        "watch-reads-shop_2e_clicks": "receive",
        "watch-reads-counts-table": "receive",
        "watch-reads-users-table": "receive",
        "watch-writes-alerts": "send",
        "watch-writes-watch-seen": "send",
    }
    channels = {f"#/channels/{name}" for name in found["channels"]}
    assert set(references(found["operations"])) == channels


def test_openlineage_has_a_job_for_each_group_with_its_data_sets_and_their_fields() -> None:
    counts, watch = map(json.loads, openlineage([COUNTS, WATCH], "broker:9092", NOW).splitlines())
    assert counts["job"] == {"namespace": "kafka://broker:9092", "name": "counts"}
    assert counts["eventTime"] == "2026-12-01T00:00:00+00:00"
    assert [each["name"] for each in watch["inputs"]] == ["shop.clicks", "counts-table", "users-table"]
    assert [each["name"] for each in watch["outputs"]] == ["alerts", "watch-seen"]
    assert {each["namespace"] for each in (*watch["inputs"], *watch["outputs"])} == {"kafka://broker:9092"}
    assert counts["inputs"][0]["facets"]["schema"]["fields"] == [
        {"name": "url", "type": "string"},
        {"name": "at", "type": "timestamp-millis"},
        {"name": "user", "type": "null or string"},
    ]
    assert counts["outputs"][0]["facets"] == {}


def test_the_command_writes_both_formats(nowhere: Cli) -> None:
    spec = f"{__name__}:WATCH"
    document = json.loads(nowhere("graph", "show", spec, "--format", "asyncapi").good().out)
    assert document["asyncapi"] == "3.0.0"
    line = nowhere("graph", "show", spec, "--format", "openlineage").good().out
    assert json.loads(line)["job"]["namespace"].startswith("kafka://")

"""Which records of a group count in its computed tables, where its dead letters and retries do not say all; without a broker."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark.tests.groups.test_applied import SCHEMA, origin

from streamtable import Changes, Context, Group, Input, Json, OnError, Persist, Stream, String, Table
from streamtable_spark.errors import InputLost
from streamtable_spark.jobs import computed
from streamtable_spark.jobs.positions import Span, Spans
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import program_of

ACCOUNTS: Table[str, Any] = Table("accounts", String(), Json())
Sent = Mapping[str, list[tuple[int, list[Any]]]]


def add(ctx: Context[str, Any], event: Any) -> None:
    ctx.set((ctx.value or 0) + (event.new if hasattr(event, "new") else event))


GROUP = Group(
    "sums",
    Input(Stream("clicks", String(), Json()), add, on_error=OnError.DEAD_LETTER),
    Changes(ACCOUNTS, add, start="earliest", on_error=OnError.DEAD_LETTER),
    Persist(Json()),
)
SOURCE = Source("sums", program_of(f"{__name__}:GROUP", "sums"))


class History:
    """Records of one partition of some topics, each with an amount and headers, as a Kafka cluster has them."""

    def __init__(self, spark: SparkSession, sent: Sent, starts: Mapping[str, int] = {}) -> None:
        self.spark, self.bootstrap_servers = spark, "none"
        self._sent, self._starts = sent, starts

    def read(self, _: SparkSession, __: str, spans: Spans) -> DataFrame:
        rows = [
            (topic, 0, offset, datetime(2026, 3, 1, 0, 0, offset, tzinfo=UTC), b"k", b"%d" % amount, headers)
            for topic, parts in spans.items()
            for offset, (amount, headers) in enumerate(self._sent.get(topic, ()))
            if parts[0].start <= offset < parts[0].end
        ]
        return self.spark.createDataFrame(rows, SCHEMA)

    def starts(self, topics: Any) -> dict[str, dict[int, int]]:
        return {topic: {0: self._starts.get(topic, 0)} for topic in topics}

    def stable_ends(self, topics: Any) -> dict[str, dict[int, int]]:
        return {topic: {0: len(self._sent.get(topic, ()))} for topic in topics}

    def sum(self, monkeypatch: pytest.MonkeyPatch, earlier: Any = None, **ends: int) -> int:
        """Return the row of the only key, from the records before these ends."""
        monkeypatch.setattr(computed, "read", self.read)
        request = computed.TableRequest(source=SOURCE, allow_missing=True, earlier=earlier)
        topics = dict.fromkeys(["clicks", "accounts", "sums-retry"])
        until = {topic: {0: ends.get(topic, len(self._sent.get(topic, ())))} for topic in topics}
        cluster: Any = self
        spans, letters = request.spans(cluster, until)
        found = request.compute(self.spark, cluster, spans, letters, 1_800_000_000.0)
        ((value,),) = found.tables["table"].select("value").collect()
        return int(value)


def test_a_record_whose_letter_has_expired_counts_once_as_its_retry(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Sent = {"clicks": [(1, []), (10, [])], "sums-retry": [(100, origin(1, 1))]}
    assert History(spark, sent).sum(monkeypatch) == 101


def test_expired_letters_of_a_groups_own_handlers_are_missing_history(spark: SparkSession) -> None:
    history: Any = History(spark, {"sums-dead-letters": [(1, origin(0, 1))]}, {"sums-dead-letters": 1})
    with pytest.raises(InputLost, match="sums-dead-letters"):
        computed.TableRequest(source=SOURCE).spans(history, {})


def test_retries_and_letters_of_records_that_the_next_group_handles_are_of_no_effect(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    old: Sent = {
        "clicks": [(1, []), (10, []), (100, [])],
        "sums-retry": [(1000, origin(1, 1))],
        "sums-dead-letters": [(10, origin(1, 1)), (100, origin(2, 1))],
    }
    assert History(spark, old).sum(monkeypatch, clicks=1) == 1
    renamed = {topic.replace("sums", "former"): records for topic, records in old.items()}
    spans: Any = {name: {0: Span(0, 3)} for name in ("former-dead-letters",)}
    read = {"clicks": {0: Span(0, 1)}, "former-retry": {0: Span(0, 1)}}
    earlier: Any = SimpleNamespace(inputs=read, letters=spans)
    assert History(spark, renamed).sum(monkeypatch, earlier) == 111, "by the new group itself"


def test_a_change_of_a_joined_table_in_the_dead_letters_is_not_handled(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "accounts"
    sent: Sent = {topic: [(1, []), (2, [])], "sums-dead-letters": [(2, origin(1, 1, topic))]}
    assert History(spark, sent).sum(monkeypatch) == 1

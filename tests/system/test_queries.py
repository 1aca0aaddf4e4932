"""Queries of rows in the processes that keep them: several processors on a real broker, and callers that hold no rows."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.system.bench import Bench, Running, until

from localkafka.certificates import Authority
from localkafka.process import reserve_port
from streamtable import Ack, App, BadToken, Group, Input, Json, Persist, Table, UnreadableRow
from streamtable.codec.plain import Long, String
from streamtable.errors import ConfigurationError, GraphError, NotReady
from streamtable_query import PartitionMoved, Query, QueryServer, advertise

PARTITIONS = 4
KEYS = [f"user-{number}" for number in range(40)]
EXPECTED = {key: number % 3 + 1 for number, key in enumerate(KEYS)}
PATIENT = 60.0


@contextmanager
def instance(bench: Bench, group: Group[str, int], name: str) -> Iterator[Running]:
    """A processor that answers queries at a free port, in threads of this process."""
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        processor = bench.processor(group, log=advertise(bench.kafka, address), state=name, instance_id=name)
        with QueryServer(processor, address), Running(processor) as running:
            yield running


def emit(bench: Bench, key: str, times: int = 1) -> Ack:
    with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
        return [emitter.emit(key, "event") for _ in range(times)][-1].result()


def fill(bench: Bench) -> None:
    with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
        for key, times in EXPECTED.items():
            for _ in range(times):
                emitter.emit(key, "event")


def test_each_key_is_answered_by_the_process_that_has_its_partition(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with (
        instance(bench, group, "a") as first,
        instance(bench, group, "b") as second,
        Query(bench.kafka, group, group.table, timeout=PATIENT) as counts,
    ):
        until(lambda: first.processor.working and second.processor.working, "both have partitions")
        bench.wait_handled(group)
        answers = counts.get_many(KEYS)
        assert {key: answer.value for key, answer in answers.items()} == EXPECTED
        assert len({answer.address for answer in answers.values()}) == 2
        assert {answer.source for answer in answers.values()} == {"instance"}
        assert asyncio.run(counts.aget("user-2")).value == 3


def test_a_range_has_the_rows_of_all_processes_in_the_order_of_keys(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with (
        instance(bench, group, "a") as first,
        instance(bench, group, "b") as second,
        Query(bench.kafka, group, group.table, timeout=PATIENT) as counts,
    ):
        until(lambda: first.processor.working and second.processor.working, "both have partitions")
        bench.wait_handled(group)
        assert list(counts.range()) == sorted(EXPECTED.items())
        assert list(counts.range("user-10", "user-12")) == [("user-10", 2), ("user-11", 3)]
        here = dict(counts.range(partition=0))
        assert here.items() < EXPECTED.items()


def test_a_key_without_a_row_is_answered_and_a_group_that_does_not_run_is_not(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    with Query(bench.kafka, group, group.table, timeout=1) as counts:
        with pytest.raises(NotReady, match=rf"no process of group '{group.name}' has partition \d"):
            counts.get("user-x")
        with instance(bench, group, "a"):
            answer = counts.get("user-x", timeout=PATIENT)
            assert answer.value is None
            assert answer.age_seconds < PATIENT


def test_an_answer_shows_the_effect_of_an_event_whose_ack_it_is_asked_after(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    with instance(bench, group, "a"), Query(bench.kafka, group, group.table, timeout=PATIENT) as counts:
        for times in range(1, 6):
            assert counts.get("alice", after=emit(bench, "alice")).value == times
        with pytest.raises(BadToken, match=f"has {PARTITIONS}"):
            counts.get("alice", after=Ack(bench.stream().name, 99, 0))


def test_an_event_in_another_partition_holds_up_no_answer_and_is_committed_before_it(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    with (
        instance(bench, group, "a"),
        Query(bench.kafka, group, group.table, timeout=PATIENT) as counts,
    ):
        ack = emit(bench, "alice", 30)
        other = next(key for key in KEYS if counts.get(key).partition != ack.partition)
        assert counts.get(other, after=ack).value is None
        assert counts.get("alice").value == 30


def test_the_number_of_partitions_is_asked_again(bench: Bench) -> None:
    group = bench.counting()
    with Query(bench.kafka, group, group.table, timeout=0, max_age=0) as counts:
        until(lambda: counts._count() == 1, "one partition is known")
        admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(group.table.name, 12)])[group.table.name].result(PATIENT)
        until(lambda: counts._count() == 12, "twelve partitions are known")


def test_a_local_answer_is_no_older_than_the_caller_allows(bench: Bench) -> None:
    group = bench.counting()
    with instance(bench, group, "a") as running:
        ack = emit(bench, "alice")
        with Query(bench.kafka, group, group.table, local=running.processor, timeout=PATIENT) as counts:
            bench.wait_handled(group, running)
            near = counts.get("alice", after=ack)
            assert (near.source, 0 < near.age_seconds < PATIENT) == ("local", True)
            assert counts.get("alice", max_age=0).source == "instance"


def test_when_a_process_stops_the_answers_come_from_the_one_that_takes_over(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with (
        instance(bench, group, "a") as first,
        Query(bench.kafka, group, group.table, timeout=PATIENT) as counts,
    ):
        with instance(bench, group, "b") as second:
            until(lambda: first.processor.working and second.processor.working, "both have partitions")
            bench.wait_handled(group)
            before = counts.get_many(KEYS)
        after = counts.get_many(KEYS)
        assert {key: answer.value for key, answer in after.items()} == EXPECTED
        assert {answer.address for answer in after.values()} < {answer.address for answer in before.values()}


def test_a_range_goes_on_where_a_partition_has_moved_to_and_a_strict_one_says_so(bench: Bench) -> None:
    group = bench.counting()
    keys = [f"{number:05}" for number in range(1_500)]
    bench.send(bench.stream().name, *((key, "event") for key in keys))
    with Query(bench.kafka, group, group.table, timeout=PATIENT) as counts:
        with instance(bench, group, "a") as first:
            bench.wait_handled(group, first)
            moving, strict = counts.range(), counts.range(strict=True)
            read = [next(moving)]
            next(strict)
        with instance(bench, group, "b"):
            read += moving
            assert read == [(key, 1) for key in keys]
            with pytest.raises(PartitionMoved, match="partition 0 of"):
                list(strict)


def test_a_processor_in_the_same_process_is_asked_without_the_network(bench: Bench) -> None:
    group = bench.counting()
    with instance(bench, group, "a") as running:
        ack = emit(bench, "alice")
        with Query(bench.kafka, group, group.table, local=running.processor, timeout=PATIENT) as counts:
            bench.wait_handled(group, running)
            answer = counts.get("alice", after=ack)
            assert (answer.value, answer.source, answer.address) == (1, "local", "")


def test_a_process_that_answers_no_queries_is_named(bench: Bench) -> None:
    group = bench.counting()
    with bench.run(group) as running, Query(bench.kafka, group, group.table, timeout=PATIENT) as counts:
        bench.wait_handled(group, running)
        with pytest.raises(ConfigurationError, match=r"start it with advertise\(\) and a QueryServer"):
            counts.get("alice")


def test_a_table_of_another_group_is_refused(bench: Bench) -> None:
    group = bench.counting()
    with pytest.raises(
        GraphError, match=rf"does not keep the table 'other': its tables are {group.table.name}"
    ):
        Query(bench.kafka, group, Table("other", String(), Long()))


def test_a_row_that_the_codec_of_the_caller_cannot_decode_is_an_error_with_its_place(bench: Bench) -> None:
    group = bench.counting()
    other: Group[str, Any] = Group(group.name, Input(bench.stream(), print), Persist(Json()))
    with instance(bench, group, "a"), Query(bench.kafka, other, other.table, timeout=PATIENT) as texts:
        ack = emit(bench, "alice")
        with pytest.raises(UnreadableRow, match="cannot be decoded") as raised:
            texts.get("alice", after=ack)
        assert (raised.value.topic, raised.value.partition) == (group.table.name, 0)


def test_only_callers_with_a_certificate_of_the_authority_are_answered(bench: Bench) -> None:
    group = bench.counting()
    authority, foreign = Authority("query"), Authority("foreign")
    server = authority.issue("server", ["localhost", "127.0.0.1"], timedelta(hours=1))
    asks = grpc.ssl_server_credentials(
        [(server.key, server.certificate)], authority.certificate, require_client_auth=True
    )
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        processor = bench.processor(group, log=advertise(bench.kafka, address))
        with QueryServer(processor, address, credentials=asks), Running(processor):
            for issuer, answered in ((authority, True), (foreign, False)):
                caller = issuer.issue("caller", [], timedelta(hours=1))
                credentials = grpc.ssl_channel_credentials(
                    authority.certificate, caller.key, caller.certificate
                )
                with Query(bench.kafka, group, group.table, credentials=credentials) as counts:
                    if answered:
                        assert counts.get("alice", timeout=PATIENT).value is None
                    else:
                        with pytest.raises(NotReady, match="UNAVAILABLE"):
                            counts.get("alice", timeout=3)

"""Queries of rows in the processes that keep them: several processors on a real broker, and callers that hold no rows."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, cast

import grpc
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.system.bench import Bench, Running, until

from contracts.grpc.query.v1 import query_pb2
from contracts.grpc.query.v1.query_pb2_grpc import QueryStub
from localkafka.certificates import Authority
from localkafka.process import reserve_port
from streamtable import (
    Ack,
    App,
    BadToken,
    Group,
    Input,
    Json,
    PartitionNotAssigned,
    Persist,
    Table,
    UnreadableRow,
)
from streamtable.base.range_assignor import order_of, range_of
from streamtable.codec.plain import Long, String
from streamtable.errors import ConfigurationError, GraphError, NotReady
from streamtable_query import PartitionMoved, Query, QueryServer, RemoteTable, add_query_service, advertise
from streamtable_query.sources import ProcessorSource

PARTITIONS = 4
KEYS = [f"user-{number}" for number in range(40)]
EXPECTED = {key: number % 3 + 1 for number, key in enumerate(KEYS)}
PATIENT = 60.0


@contextmanager
def instance(
    bench: Bench, group: Group[str, int], name: str, *, standby: bool | int = False
) -> Iterator[Running]:
    """A processor that answers queries at a free port, in threads of this process."""
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        processor = bench.processor(
            group, log=advertise(bench.kafka, address), state=name, instance_id=name, standby=standby
        )
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
        whole = counts.range()
        assert dict(whole) == EXPECTED
        answers = counts.get_many(EXPECTED).values()
        assert {each.partition: (each.offset, each.source, each.address) for each in answers} == {
            number: (part.offset, part.source, part.address) for number, part in whole.parts.items()
        }
        assert all(0 <= part.age_seconds < PATIENT and not part.moved for part in whole.parts.values())
        here = dict(counts.range(partition=0))
        assert here.items() < EXPECTED.items()
        for none in (-1, PARTITIONS):
            with pytest.raises(ValueError, match=f"{PARTITIONS} partitions, from 0: no {none}"):
                counts.range(partition=none)


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
        until(lambda: counts.topic.partitions == 1, "one partition is known")
        admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(group.table.name, 12)])[group.table.name].result(PATIENT)
        until(lambda: counts.topic.partitions == 12, "twelve partitions are known")


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
            assert moving.parts[0].moved
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


def test_a_local_answer_costs_no_more_than_some_reads_of_a_view(bench: Bench) -> None:
    """A view's read has neither offset nor age, nor does it check that the partition is still here: it is 2.9 times as cheap."""
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with (
        instance(bench, group, "a") as running,
        Query(
            bench.kafka, group, group.table, local=running.processor, timeout=PATIENT, max_age=600
        ) as counts,
        App(bench.kafka, bench.folder / "view") as app,
    ):
        bench.wait_handled(group, running)
        view = app.view(group.table)
        view.wait_ready(PATIENT)
        assert {counts.get(key).source for key in KEYS} == {"local"}

        def seconds(read: Callable[[str], Any]) -> float:
            began = time.thread_time()
            for key in KEYS * 10:
                read(key)
            return time.thread_time() - began

        # By turns, and compared within each turn: the clock of the processor and what other processes leave in its caches
        # differ from one moment to the next, and would differ for the best of each.
        times = statistics.median(seconds(counts.get) / seconds(view.get) for _ in range(51))
        assert times <= 4.5, f"{times:.2f} times"


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


def test_replicas_whose_certificate_has_the_name_of_their_service_are_known_by_it(bench: Bench) -> None:
    group, authority = bench.counting(), Authority("query")
    server = authority.issue("orders", ["orders"])
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        processor = bench.processor(group, log=advertise(bench.kafka, address))
        shown = grpc.ssl_server_credentials([(server.key, server.certificate)])
        with QueryServer(processor, address, credentials=shown), Running(processor):
            for name in ("orders", None):
                with Query(
                    bench.kafka, group, group.table, credentials=credentials, server_name=name
                ) as counts:
                    if name == "orders":
                        assert counts.get("alice", timeout=PATIENT).value is None
                    else:
                        with pytest.raises(NotReady, match="UNAVAILABLE"):
                            counts.get("alice", timeout=3)


def test_the_coordinator_assigns_the_ranges_of_the_sorted_members(bench: Bench) -> None:
    """Standby copies are kept, and looked for, by this function alone."""
    group = bench.counting(partitions=7)
    admin = bench.kafka.admin()

    def parts() -> list[set[int]]:
        found = admin.describe_groups([group.name]).get(group.name)
        members = () if found is None else found.members
        ordered = sorted(members, key=lambda each: order_of(each.member_id, each.instance_id))
        return [
            {place.partition for place in each.partitions if place.topic == bench.stream().name}
            for each in ordered
        ]

    with ExitStack() as stack:
        stack.callback(admin.close)
        for name in "abc":
            stack.enter_context(instance(bench, group, name))
        until(lambda: parts() == [set(range_of(place, 3, 7)) for place in range(3)], "the ranges of three")


def test_while_no_process_has_a_partition_its_standby_copy_answers_those_who_allow_it(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with ExitStack() as stack:
        query = stack.enter_context(Query(bench.kafka, group, group.table, timeout=PATIENT))
        first = stack.enter_context(instance(bench, group, "a", standby=1))
        second = stack.enter_context(instance(bench, group, "b", standby=1))
        until(lambda: first.processor.working and second.processor.working, "both have partitions")
        bench.wait_handled(group)
        there = set(second.processor.working)
        until(lambda: all(warm(first, group, number) for number in there), "a has copies of what b has")
        source = ProcessorSource(first.processor)
        for key in KEYS:
            answer = query.get(key)
            if answer.partition not in there:
                continue
            raw = [group.table.key.encode(key)]
            with pytest.raises(PartitionNotAssigned):
                source.get(group.table.name, answer.partition, raw, None)
            with pytest.raises(NotReady, match="s old, and at most 0 s are asked for"):
                source.get(group.table.name, answer.partition, raw, 0)
            found = source.get(group.table.name, answer.partition, raw, PATIENT)
            assert (found.kind, found.values) == ("standby", [Long().encode(EXPECTED[key])])
            assert found.offset >= answer.offset  # a copy has passed the marker of the last commit too
            assert 0 <= found.age_seconds < PATIENT


def warm(running: Running, group: Group[str, int], partition: int) -> bool:
    replica = running.processor.replica(group.table.name, partition)
    return replica is not None and replica.current and not replica.lag


def test_when_the_owner_does_not_answer_a_standby_copy_does_marked_as_such(bench: Bench) -> None:
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with ExitStack() as stack:
        query = stack.enter_context(Query(bench.kafka, group, group.table, timeout=PATIENT))
        first = stack.enter_context(instance(bench, group, "a", standby=1))
        with reserve_port() as held:  # nothing answers there
            log = advertise(bench.kafka, f"127.0.0.1:{held.getsockname()[1]}")
            mute = stack.enter_context(
                Running(bench.processor(group, log=log, state="mute", instance_id="mute"))
            )
            until(lambda: first.processor.working and mute.processor.working, "both have partitions")
            bench.wait_handled(group)
            there = set(mute.processor.working)
            until(lambda: all(warm(first, group, number) for number in there), "a has copies of the others")
            answers = query.get_many(KEYS, stale_ok=PATIENT)
            assert {key: answer.value for key, answer in answers.items()} == EXPECTED
            assert {(answer.partition in there, answer.source) for answer in answers.values()} == {
                (True, "standby"),
                (False, "instance"),
            }
            assert all(0 <= answer.age_seconds < PATIENT for answer in answers.values())
            rows = query.range(stale_ok=PATIENT)
            assert list(rows) == sorted(EXPECTED.items())
            assert {number for number, part in rows.parts.items() if part.source == "standby"} == there
            key = next(key for key, answer in answers.items() if answer.partition in there)
            with pytest.raises(NotReady, match="UNAVAILABLE"):
                query.get(key, timeout=1)
            with pytest.raises(NotReady, match="s old, and at most 0 s are asked for"):
                query.get(key, timeout=1, stale_ok=0)


def test_a_process_of_another_cluster_with_the_same_names_is_refused(bench: Bench) -> None:
    """A topic that was created again stands for it: the id of a topic differs between clusters too."""
    group = bench.counting()
    with instance(bench, group, "a"), Query(bench.kafka, group, group.table, timeout=PATIENT) as counts:
        assert counts.get("alice").value is None
        request = query_pb2.GetRequest(
            version=1,
            group=group.name,
            table=group.table.name,
            keys=[b"alice"],
            topic_id="of-another-cluster",
        )
        (target,) = counts._channels._made
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError) as refused:
            QueryStub(channel).Get(request, timeout=PATIENT)
        call = cast("grpc.Call", refused.value)
        assert ("streamtable-reason", "wrong-group") in [
            tuple(each) for each in call.trailing_metadata() or ()
        ]
        assert "works on another Kafka cluster" in str(call.details())


def test_a_remote_table_answers_as_a_view_does_and_shows_the_writes_that_were_waited_for(
    bench: Bench,
) -> None:
    group = bench.counting(partitions=PARTITIONS)
    fill(bench)
    with RemoteTable(Query(bench.kafka, group, group.table, timeout=PATIENT)) as counts:
        assert not counts.ready
        until(lambda: "has partition" in counts.not_ready, "it says what is missing")
        with instance(bench, group, "a"):
            until(lambda: counts.ready, "there is a process to ask")
            asyncio.run(counts.wait_for_async(emit(bench, "user-0"), PATIENT))
            answer = counts.answer("user-0")
            assert (answer.value, answer.stale) == (EXPECTED["user-0"] + 1, False)
            bench.wait_handled(group)
            found = list(counts.iterate("user-1", "user-10"))
            assert found == [("user-11", 3), *((f"user-{n}", EXPECTED[f"user-{n}"]) for n in range(12, 20))]
            assert max(each.age_seconds for each in counts.position().values()) >= 0
        assert counts.ready, "it still answers for all others when a partition has no process"


def test_a_remote_table_that_the_processes_refuse_is_not_ready_and_says_why(bench: Bench) -> None:
    group = bench.counting()

    class Refusing(grpc.ServerInterceptor):  # type: ignore[type-arg] # it is generic in the stubs only
        def intercept_service(self, continuation: Any, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                lambda _, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such key")
            )

    server = grpc.server(ThreadPoolExecutor(1), interceptors=[Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with (
            Running(bench.processor(group, log=advertise(bench.kafka, f"127.0.0.1:{port}"), state="a")),
            RemoteTable(Query(bench.kafka, group, group.table, timeout=PATIENT)) as counts,
            pytest.raises(ConfigurationError, match="UNAUTHENTICATED: no such key"),
        ):
            until(lambda: counts.ready, "it is refused")
    finally:
        server.stop(None).wait()


def test_a_remote_table_skips_rows_that_cannot_be_decoded_and_names_them(bench: Bench) -> None:
    group = bench.counting(partitions=1)
    fill(bench)
    texts = Table(group.table.name, String(), Json())
    with instance(bench, group, "a") as running:
        bench.wait_handled(group, running)
        with Query(bench.kafka, group, cast("Any", texts), timeout=PATIENT) as counts:
            skipped: list[UnreadableRow] = []
            assert list(counts.iterate("user-3", on_unreadable=skipped.append)) == []
            assert [each.key for each in skipped][:2] == [b"user-3", b"user-30"]


def test_a_server_of_an_event_loop_refuses_with_the_same_reasons(bench: Bench) -> None:
    group = bench.counting(partitions=1)
    processor = bench.processor(group)

    async def refused() -> grpc.aio.AioRpcError:
        server = grpc.aio.server()
        add_query_service(processor, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = QueryStub(cast("Any", channel))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Get(query_pb2.GetRequest(version=1, group="other", table="other-table"))
        await server.stop(0)
        return caught.value

    error = asyncio.run(refused())
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert f"no group 'other' runs here, only {group.name}" in str(error.details())
    assert "wrong-group" in str(error.trailing_metadata())

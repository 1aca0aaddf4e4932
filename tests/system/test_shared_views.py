"""Views that share a table: each process holds a part of it on disk, and any of them answers for any key."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.system.bench import Bench, until

from localkafka.process import reserve_port
from streamtable import Ack, App, Group
from streamtable.errors import ConfigurationError, NotReady
from streamtable_query import RemoteTable, SharedView

PARTITIONS = 12
KEYS = [f"user-{number}" for number in range(60)]
EXPECTED = {key: number % 3 + 1 for number, key in enumerate(KEYS)}
PATIENT = 60.0


@contextmanager
def filled(bench: Bench) -> Iterator[Group[str, int]]:
    group = bench.counting(partitions=PARTITIONS)
    with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
        for key, times in EXPECTED.items():
            for _ in range(times):
                emitter.emit(key, "event")
    with bench.run(group) as running:
        bench.wait_handled(group, running)
        yield group


@contextmanager
def member(
    bench: Bench, group: Group[str, int], name: str, replicas: int = 2
) -> Iterator[SharedView[str, int]]:
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        app = App(bench.kafka, bench.folder / name)
        with SharedView(
            app,
            group.table,
            bench.name("readers"),
            address,
            replicas=replicas,
            listen=address,
            timeout=PATIENT,
        ) as view:
            yield view


def spread(views: list[SharedView[str, int]], replicas: int) -> bool:
    """Return whether all members hold their shares: each partition as often as it has replicas."""
    held = [number for view in views for number in view.shard.partitions]
    return not any(view.not_ready for view in views) and sorted(held) == sorted(
        list(range(PARTITIONS)) * replicas
    )


def test_any_member_answers_for_any_key_and_holds_a_share_only(bench: Bench) -> None:
    with filled(bench) as group, ExitStack() as stack:
        views = [stack.enter_context(member(bench, group, name)) for name in ("a", "b", "c", "d")]
        until(lambda: spread(views, 2), "each holds half of the table")
        assert [len(view.shard.partitions) for view in views] == [PARTITIONS // 2] * 4
        for view in views:
            answers = view.get_many(KEYS)
            assert {key: answer.value for key, answer in answers.items()} == EXPECTED
            assert {answer.source for answer in answers.values()} == {"view"}
            own = {answer.address for answer in answers.values() if answer.partition in view.shard.partitions}
            assert own == {""}, "no call over the network"
            assert all(0 <= answer.age_seconds < PATIENT for answer in answers.values())
            assert list(view.range("user-10", "user-12")) == [("user-10", 2), ("user-11", 3)]
            assert dict(view.range()) == EXPECTED


def test_when_a_member_is_gone_the_other_replicas_answer_at_once(bench: Bench) -> None:
    with filled(bench) as group, ExitStack() as stack:
        views = [stack.enter_context(member(bench, group, name)) for name in ("a", "b")]
        with member(bench, group, "c") as third:
            until(lambda: spread([*views, third], 2), "each holds two thirds of the table")
            assert {key: answer.value for key, answer in views[0].get_many(KEYS).items()} == EXPECTED
        found = {key: views[0].get(key, timeout=1).value for key in KEYS}
        assert found == EXPECTED
        until(lambda: spread(views, 2), "the two hold all of it")
        assert {answer.address for answer in views[0].get_many(KEYS).values()} == {""}


def test_an_answer_shows_the_effect_of_an_event_after_which_it_is_asked_for(bench: Bench) -> None:
    with filled(bench) as group, ExitStack() as stack:
        views = [stack.enter_context(member(bench, group, name, replicas=1)) for name in ("a", "b")]
        until(lambda: spread(views, 1), "each holds half of the table")
        with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
            for view in views:
                for key in ("user-3", "user-4"):
                    before = view.get(key).value or 0
                    ack: Ack = emitter.emit_now(key, "event")
                    assert view.get(key, after=ack).value == before + 1


def test_a_share_is_kept_on_disk_and_an_old_one_is_not_taken_for_the_present(bench: Bench) -> None:
    with filled(bench) as group:
        with member(bench, group, "a", replicas=1) as view:
            view.wait_ready(PATIENT)
            assert view.get("user-2").value == 3
        folder = bench.folder / "a" / "shared" / bench.name("readers") / group.table.name
        assert len(list(Path(folder).iterdir())) == PARTITIONS
        with member(bench, group, "a", replicas=1) as view:
            with pytest.raises(NotReady, match=r"no answer for partition|has no topic|is not known yet"):
                view.get("user-2", timeout=0.001)
            view.wait_ready(PATIENT)
            assert view.get("user-2").value == 3


def test_a_service_reads_a_shared_view_as_it_reads_a_view_and_sees_its_own_writes(bench: Bench) -> None:
    with filled(bench) as group, member(bench, group, "a") as other, member(bench, group, "b") as mine:
        counts = RemoteTable(mine)
        until(lambda: spread([other, mine], 2) and counts.ready, "each holds all of the table")
        with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
            for times in range(1, 6):
                asyncio.run(counts.wait_for_async(emitter.emit_now("user-3", "event"), PATIENT))
                assert counts.answer("user-3").value == EXPECTED["user-3"] + times
        assert dict(counts.iterate("user-1", "user-10")) == {
            key: times for key, times in EXPECTED.items() if key.startswith("user-1") and key > "user-10"
        }
        with counts.watch("user-3") as changes:
            with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
                emitter.emit_now("user-3", "event")
            change = changes.next(PATIENT)
            assert change is not None
            assert change.value == EXPECTED["user-3"] + 6
        counts.close()


def test_a_copy_that_lacks_a_write_which_was_waited_for_does_not_answer(bench: Bench) -> None:
    """The other replica stands for one that lags: what was waited for is set behind all that there is."""
    with filled(bench) as group, member(bench, group, "a") as view:
        view.wait_ready(PATIENT)
        with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
            ack = emitter.emit_now("user-3", "event")
        end = view.wait_for(ack, PATIENT)
        assert view.get("user-3").offset >= end
        view.topic.hold({ack.partition: 1 << 40}, view.topic.id)
        with pytest.raises(NotReady, match="not yet at"):
            view.get("user-3", timeout=4)
        with pytest.raises(NotReady, match="not yet at"):
            list(view.range(partition=ack.partition, timeout=4))


def test_the_processors_know_nothing_of_readers(bench: Bench) -> None:
    with filled(bench) as group, member(bench, group, "a") as view:
        view.wait_ready(PATIENT)
        admin = bench.kafka.admin()
        try:
            committed = admin.stable_offsets(view.shard.group, bench.places(group))
        finally:
            admin.close()
        assert set(committed.values()) == {None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shared": "big readers", "address": "a:1"}, "shared='big readers'"),
        ({"shared": "readers", "address": "nowhere"}, "is no address"),
        ({"shared": "readers", "address": "a:1", "replicas": 0}, "give at least 1"),
    ],
)
def test_what_no_view_could_be_shared_with_is_refused(
    bench: Bench, arguments: dict[str, object], message: str
) -> None:
    group = bench.counting()
    with pytest.raises(ConfigurationError, match=message):
        SharedView(App(bench.kafka, bench.folder), group.table, **arguments)  # type: ignore[arg-type]

"""Two groups whose names and states make the same topic, in two processes that know nothing of each other."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.system.bench import Bench, until

from streamtable import App, Group, Input, Long, Persist, State, String
from streamtable.errors import ConfigurationError, TopicShared
from streamtable_admin import cluster_checks, examination
from streamtable_admin.cluster import connect
from streamtable_admin.findings import Level
from streamtable_cli import checks


def shops(bench: Bench) -> tuple[Group[str, Any], Group[str, Any]]:
    name = bench.name("shop")
    states = [State(each, key=String(), value=Long()) for each in ("totals-day", "day")]
    groups = [
        Group(given, Input(bench.stream(), lambda ctx, event: None), state)
        for given, state in zip((name, f"{name}-totals"), states, strict=True)
    ]
    return groups[0], groups[1]


@pytest.mark.parametrize("first", [0, 1], ids=["the shorter name first", "the longer name first"])
def test_a_group_does_not_start_on_the_changelog_of_another_one(first: int, bench: Bench) -> None:
    one, other = shops(bench)[first], shops(bench)[1 - first]
    bench.create(one)
    bench.create(other)
    with bench.run(one) as running:
        until(lambda: running.processor.ready, "it works")
    with pytest.raises(TopicShared) as refused:
        bench.processor(other, state="other").run()
    assert refused.value.topic == bench.name("shop-totals-day")
    for name in (one.name, other.name):
        assert repr(name) in str(refused.value)
    with App(bench.kafka, bench.folder / "app") as app, pytest.raises(ConfigurationError, match=one.name):
        app.create_topics(other)
    owner = bench.processor(one)
    owner.start()  # it is not refused
    owner.close()


def test_an_open_transaction_of_one_group_keeps_no_other_from_creating_its_topics_nor_the_doctor_from_checking(
    bench: Bench,
) -> None:
    shop, _ = shops(bench)
    bench.create(shop)
    settings = {"bootstrap.servers": bench.kafka.bootstrap_servers}
    member = Consumer({**settings, "group.id": shop.name})
    producer = Producer({**settings, "transactional.id": bench.name("hanging")})
    producer.init_transactions(30)
    producer.begin_transaction()
    place = TopicPartition(f"{shop.name}-retry", 0, 0)
    producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), 30)
    other: Group[str, Any] = Group(
        f"{shop.name}-other", Input(bench.stream(), lambda ctx, event: None), Persist(Long())
    )
    with App(bench.kafka, bench.folder / "app") as app:
        app.create_topics(other)
    with connect(bench.kafka) as cluster:
        assert examination.checked("topics", lambda: cluster_checks.owners(cluster, [shop.name])) == []
    producer.abort_transaction(30)
    member.close()


def test_groups_that_have_started_together_end_soon_and_the_doctor_names_both(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, logged: list[MutableMapping[str, Any]]
) -> None:
    one, other = shops(bench)
    bench.create(one)
    bench.create(other)
    with monkeypatch.context() as patch:
        patch.setattr("streamtable.engine.processor.refuse_topics_of_others", lambda *_: None)
        with bench.run(one, state="one") as first, bench.run(other, state="other") as second:
            until(lambda: first.processor.ready and second.processor.ready, "both work")
            patch.undo()
            patch.setattr("streamtable.engine.processor._CHECK_TOPICS_SECONDS", 0.1)
            until(lambda: first.error is not None and second.error is not None, "both have ended")
            assert isinstance(first.error, TopicShared)
            assert isinstance(second.error, TopicShared)
            first.error = second.error = None
    with connect(bench.kafka) as cluster:
        (finding,) = cluster_checks.owners(cluster, [one.name, other.name])
        assert finding.level is Level.PROBLEM
        assert one.name in finding.fact
        assert other.name in finding.fact
        (of_graph,) = checks.graph(cluster, one)
        assert of_graph.level is Level.PROBLEM

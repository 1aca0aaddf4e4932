"""Groups, flows and views on a Kafka without the consumer protocol (KIP-848): one from before 4.0, and one of today where
it is switched off. The first one's jars (49 MB) are fetched when they are not in the cache yet.
"""

import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import Cli
from tests.system.bench import Bench, events, until
from tests.system.test_flow import running

from localkafka.broker import Broker
from localkafka.fixtures import PATIENT, Topics
from localkafka.jars import KAFKA_3_VERSION, KAFKA_VERSION
from streamtable import App, Guarantee, Kafka, Stream, String
from streamtable.flow import Flow
from streamtable.kafka.consumer import KafkaGroupConsumer

pytestmark = pytest.mark.broker

BROKERS: dict[str, tuple[str, dict[str, str]]] = {
    "before 4.0": (KAFKA_3_VERSION, {}),
    "switched off": (KAFKA_VERSION, {"group.coordinator.rebalance.protocols": "classic"}),
}


@pytest.fixture(scope="module", params=BROKERS)
def classic_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    version, settings = BROKERS[request.param]
    with tempfile.TemporaryDirectory(prefix="streamtable-classic-") as folder:
        made = Broker(Path(folder), overrides=PATIENT | settings, brief=True, version=version)
        try:
            made.start()
            yield made
        finally:
            made.kill()
            made.close()


@pytest.fixture
def old(classic_broker: Broker, tmp_path: Path) -> Iterator[Bench]:
    topics = Topics(classic_broker.bootstrap_servers)
    made = Bench(classic_broker.bootstrap_servers, topics, tmp_path)
    yield made
    made.close()
    topics.delete_all()


class Recorder:
    """Keeps log lines, also where the logger of the module was made for an earlier configuration."""

    def __init__(self) -> None:
        self.lines: list[MutableMapping[str, Any]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **more: self.lines.append({"event": event, "log_level": level, **more})


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[MutableMapping[str, Any]]:
    recorder = Recorder()
    monkeypatch.setattr("streamtable.kafka.consumer.log", recorder)
    return recorder.lines


def said(logged: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in logged if line["event"].startswith("classic group protocol used")]


def test_a_group_with_default_settings_counts_once_over_a_rebalance_and_a_restart_and_says_which_protocol(
    old: Bench, logged: list[MutableMapping[str, Any]]
) -> None:
    group = old.counting()
    keys = [f"k{number}" for number in range(8)]
    old.send(group.input_topics[0], *events(*keys, times=10))
    old.work_off(group)
    assert [(line["log_level"], line["client"]) for line in said(logged)] == [("warning", group.name)]
    assert old.table(group) == dict.fromkeys(keys, 10)

    old.send(group.input_topics[0], *events(*keys, times=10))
    with old.run(group) as first, old.run(group, state="second", instance_id="j") as second:
        until(lambda: first.processor.ready and second.processor.ready, "both have joined")
        old.wait_handled(group)
        first.stop()
        old.send(group.input_topics[0], *events(*keys, times=10))
        until(lambda: second.processor.working == (0,), "the second has taken the partition")
        old.wait_handled(group)
    assert old.table(group) == dict.fromkeys(keys, 30)


def test_two_members_share_the_partitions_and_the_one_that_stays_takes_them_all(old: Bench) -> None:
    group = old.counting(partitions=4)
    (topic,) = (name for name in group.input_topics if name.endswith("-in"))
    with old.run(group) as first, old.run(group, state="second", instance_id="j") as second:
        both = [first.processor, second.processor]
        until(lambda: all(len(each.working) == 2 for each in both), "each works on two partitions")
        for partition in range(4):
            old.send(topic, *events(f"p{partition}", times=5), partition=partition)
        old.wait_handled(group)
        first.stop()
        until(lambda: len(second.processor.working) == 4, "the second works on all")
        for partition in range(4):
            old.send(topic, *events(f"p{partition}", times=5), partition=partition)
        old.wait_handled(group)
    assert old.table(group) == {f"p{each}": 10 for each in range(4)}


def test_a_flow_with_a_repartition_and_a_view_of_its_table_hold_every_event_once(old: Bench) -> None:
    pages = Stream(old.name("views"), String(), String())
    flow = Flow(old.name("flow"))
    by_page = flow.stream(pages).group_by("by-page", str, key=String()).count("per-page")
    with App(old.kafka, old.folder) as app, app.emitter(pages) as emitter:
        app.create_topics(flow, partitions=2)
        for turn in range(1, 3):
            with running(app, flow):
                for visitor in range(50):
                    emitter.emit(f"visitor-{visitor}", f"page-{visitor % 5}")
                emitter.flush(60)
                with app.view(by_page.table) as view:
                    view.wait_ready(60)
                    wanted = {f"page-{number}": 10 * turn for number in range(5)}
                    until(lambda: view.get_many(wanted) == wanted, f"all are counted in turn {turn}")  # noqa: B023 - at once


def test_at_least_once_commits_by_the_consumer(old: Bench) -> None:
    group = old.counting()
    old.send(group.input_topics[0], *events("a", times=20))
    old.work_off(group, guarantee=Guarantee.AT_LEAST_ONCE)
    assert old.table(group) == {"a": 20}


def test_a_client_with_debug_lines_of_its_own_notices_it_too(classic_broker: Broker, old: Bench) -> None:
    kafka = Kafka(classic_broker.bootstrap_servers, {"debug": "broker"})
    group = old.counting()
    with old.run(group, log=kafka) as member:
        until(lambda: member.processor.ready and member.processor.working, "it has joined")
        assert member.processor.member is not None
        consumer = member.processor.member._consumer
        assert isinstance(consumer, KafkaGroupConsumer)
        assert consumer.protocol == "classic"


def test_doctor_says_that_groups_use_the_classic_protocol(classic_broker: Broker, old: Bench) -> None:
    cli = Cli(classic_broker.bootstrap_servers, "--timeout", "20")
    group = old.counting()
    with old.run(group) as member:
        until(lambda: member.processor.ready and member.processor.working, "it has joined")
        found = cli("doctor", "--group", group.name, "--json").json
        listed = cli("group", "describe", group.name, "--json").good().json
    facts = {each["fact"]: each["level"] for each in found}
    assert (
        facts["groups use the classic protocol: this broker does not offer the consumer protocol (KIP-848)"]
        == "warning"
    )
    assert [fact for fact in facts if fact.startswith("stable, 1 member (classic protocol), lag")]
    assert listed["protocol"] == "classic"

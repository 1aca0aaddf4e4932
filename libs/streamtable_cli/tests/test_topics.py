"""`streamtable topics` as a user runs it."""

from pathlib import Path

import pytest
from libs.streamtable_cli.tests.bench import Cli, Ran

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from streamtable import Kafka
from streamtable.graph.topic_check import check_topics
from streamtable_cli.modules import load_groups


def run(bootstrap_servers: str, *arguments: str) -> Ran:
    return Cli(bootstrap_servers).run("topics", *arguments)


@pytest.fixture
def file(tmp_path: Path, topics: Topics) -> Path:
    """A declaration of one topic and a group that reads it."""
    path = tmp_path / "topics.yaml"
    write(path, topics, partitions=3)
    return path


def write(path: Path, topics: Topics, *, partitions: int, retention_ms: int = 1000) -> None:
    name = topics.name("in")
    path.write_text(
        f"topics: {{{name}: {{partitions: {partitions}, config: {{retention.ms: {retention_ms}}}}}}}\n"
        f"groups: {{{topics.name('g')}: {{inputs: [{name}]}}}}\n"
    )


def test_apply_creates_missing_topics_and_is_idempotent(file: Path, broker: Broker, topics: Topics) -> None:
    before = run(broker.bootstrap_servers, "plan", "--json", "--file", str(file))
    assert before.code == 0, before.err
    created = [topic["name"] for topic in before.json["create"]]
    assert created == [topics.name(name) for name in ("in", "g-table", "g-dead-letters", "g-retry")]
    assert run(broker.bootstrap_servers, "apply", "--file", str(file)).code == 0
    after = run(broker.bootstrap_servers, "plan", "--json", "--file", str(file))
    assert after.json == {"create": [], "alter": [], "refused": [], "same": created}


def test_apply_alters_a_safe_setting(file: Path, broker: Broker, topics: Topics) -> None:
    run(broker.bootstrap_servers, "apply", "--file", str(file))
    write(file, topics, partitions=3, retention_ms=5000)
    altered = run(broker.bootstrap_servers, "apply", "--file", str(file))
    assert altered.code == 0
    assert "1000 -> 5000" in altered.out
    deadline = Deadline(30)
    while "alter" in run(broker.bootstrap_servers, "plan", "--file", str(file)).out:
        assert not deadline.passed()


def test_apply_refuses_another_number_of_partitions_and_then_changes_nothing(
    file: Path, broker: Broker, topics: Topics
) -> None:
    topics.create("in", partitions=2, config={"retention.ms": "1000"})
    refused = run(broker.bootstrap_servers, "apply", "--file", str(file))
    assert refused.code == 2
    assert "partitions is 2, but 3 is declared" in refused.out
    assert "move to other partitions" in refused.out
    assert "nothing was changed" in refused.err
    again = run(broker.bootstrap_servers, "plan", "--json", "--file", str(file))
    assert again.code == 2, again.err
    plan = again.json
    assert len(plan["create"]) == 3


def test_without_a_broker_the_address_is_named_soon(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: {some: }")
    with reserve_port(0) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        answer = run(address, "plan", "--file", str(file))
    assert (answer.code, answer.out) == (1, "")
    assert address in answer.err
    assert "Traceback" not in answer.err


def test_a_missing_file_is_an_error_of_one_line() -> None:
    answer = run("127.0.0.1:9", "plan", "--file", "none.yaml")
    assert answer.code == 2
    assert answer.err.startswith("error: there is no none.yaml")
    assert len(answer.err.splitlines()) == 1


FLOW = """
from streamtable import Stream, String
from streamtable.flow import Flow

def shop(prefix):
    flow = Flow(prefix + "-shop")
    orders = flow.stream(Stream(prefix + "-orders", String(), String())).group_by_key().reduce("orders", max)
    products = flow.stream(Stream(prefix + "-products", String(), String())).group_by_key().reduce("products", max)
    orders.join("priced", products, lambda order, product: product, on=lambda order: order)
    return flow
"""


def test_the_printed_declaration_of_a_flow_creates_the_topics_that_its_processors_need(
    tmp_path: Path, broker: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_flow.py").write_text(FLOW)
    monkeypatch.chdir(tmp_path)
    printed = run("127.0.0.1:9", "declare", f"shop_flow:shop({topics.prefix})", "--partitions", "2")
    assert printed.code == 0, printed.err
    (tmp_path / "topics.yaml").write_text(printed.out)
    applied = run(broker.bootstrap_servers, "apply", "--file", "topics.yaml")
    assert applied.code == 0, applied.err
    cluster = Kafka(broker.bootstrap_servers).cluster()
    try:
        for group in load_groups(f"shop_flow:shop({topics.prefix})"):
            assert {found.partitions for found in check_topics(group, cluster).values()} == {2}
    finally:
        cluster.close()

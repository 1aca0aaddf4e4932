"""The page on services around a table: its program, as it stands there, takes, counts and shows votes."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.docs.pages import steps_of

from localkafka.broker import Broker
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from servicekit_testing import Process
from streamtable import Count, Group, Input, Long, Persist, Stream, String
from streamtable_testing import Tester

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/serve-a-table.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def servers(broker: Broker) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic(name, 2) for name in ("vote-events", "votes-retry", "votes-dead-letters")]
    topics.append(NewTopic("votes-table", 2, config=compacted))
    create_topics(admin, topics)
    yield broker.bootstrap_servers
    delete_topics(admin, [topic.topic for topic in topics])


@pytest.mark.broker
@pytest.mark.timeout(240)
def test_the_service_of_the_page_counts_what_it_takes(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "votes.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ExitStack() as opened:

        def start(command: str) -> Process:
            environment = {
                "STREAMTABLE_BOOTSTRAP_SERVERS": servers,
                "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
                "STREAMTABLE_STATE_DIR": str(tmp_path / command),
                "STREAMTABLE_INSTANCE_ID": command,
            }
            process = Process("votes", [command], environment)
            opened.callback(process.close)
            return process

        processes = [start(command) for command in ("emitter", "query", "processor")]
        emitter, query = (
            opened.enter_context(httpx.Client(base_url=f"http://{process.address()}", timeout=30))
            for process in processes[:2]
        )
        emitter.post("/votes", json=[{"user_id": "alice"}] * 2).raise_for_status()
        accepted = emitter.post("/votes", json={"user_id": "alice"}).raise_for_status()
        named = {"Streamtable-Token": accepted.headers["Streamtable-Token"]}
        wait_until(lambda: query.get("/votes/alice", headers=named).status_code == 200, 120)
        assert query.get("/votes/alice").json()["votes"] == 3
        assert query.get("/votes/bob").json()["detail"] == "no votes are known"
        assert [process.stop() for process in processes] == [0, 0, 0]


def test_the_question_of_the_page_is_answered_by_the_process_that_has_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (shown,) = (step.text for step in steps_of(PAGE) if step.title == "local_counts.py")
    votes: Stream[str, str] = Stream("votes", key=String(), value=String())
    group = Group("votes-by-user", Input(votes, aggregate=Count()), Persist(Long()))
    made = ModuleType("votes_group")
    made.VOTES_GROUP = group  # type: ignore[attr-defined] # as a module of the reader's
    monkeypatch.setitem(sys.modules, "votes_group", made)
    names: dict[str, Any] = {"__name__": "local_counts"}
    exec(compile(shown, "local_counts.py", "exec"), names)
    votes_of = names["votes_of"]
    with Tester(partitions=2) as tester:
        tester.run(group)
        tester.emit_many(votes, [("alice", "x"), ("alice", "y"), ("bob", "x"), ("cid", "x")])
        tester.join(group)
        one, other = tester.processor(group, 0), tester.processor(group, 1)
        found = [{votes_of(one, user), votes_of(other, user)} for user in ("alice", "bob", "cid")]
        assert found == [{2, None}, {1, None}, {1, None}]

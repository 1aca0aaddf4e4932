"""The service as a process, on a real broker."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from pydantic import BaseModel
from services.console.tests.world import TOKEN, World, console_of, run_with, status_with

from console import models
from console.web import PAGE, Parts, build_web
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from servicekit.http.server import HttpServer
from streamtable import Bytes, Emitter, Stream
from streamtable.base.types import Committed, NextOffset, TopicPartition

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True, scope="module")
def clicked(world: World) -> None:
    world.emit("alice", "bob", "alice")
    world.poison("eve", b"<img src=x onerror=alert(1)>")
    table = f"/api/tables/{world.group.table.name}/rows"
    world.until(table, lambda answer: len(answer["rows"]) == 2)


def test_a_processor_is_shown_with_its_partitions_and_rates(world: World) -> None:
    def worked(answer: Any) -> bool:
        found = [each for each in answer["instances"] if each["group"] == world.group.name]
        return bool(found and found[0]["dead_letters"] == 1 and found[0]["commits"])

    fleet = world.until("/api/fleet", worked)
    (worker,) = [each for each in fleet["instances"] if each["group"] == world.group.name]
    assert worker["key"] == f"{world.group.name}/processor/worker"
    assert worker["state"] == "ready"
    assert [each["partition"] for each in worker["partitions"]] == [0, 1, 2, 3]
    assert worker["committed_at"] > 0
    assert worker["memory_bytes"] > 1 << 20
    assert not fleet["actions"]


def test_the_graph_joins_the_group_with_its_topics(world: World) -> None:
    graph = world.until("/api/fleet", lambda answer: answer["graph"]["edges"])["graph"]
    edges = {(edge["source"], edge["target"]) for edge in graph["edges"]}
    own = f"group {world.group.name}"
    assert edges == {
        (f"topic {world.clicks.name}", own),
        (own, f"topic {world.group.table.name}"),
        (own, f"topic {world.group.outputs[0].stream.name}"),
    }


def test_a_process_that_tells_is_shown_and_one_that_stops_is_history(world: World) -> None:
    now = time.time_ns() // 1_000_000
    world.tell("shop/query/one", status_with(at=now, started_at=now))
    world.until(
        "/api/fleet", lambda answer: "shop/query/one" in {each["key"] for each in answer["instances"]}
    )
    world.tell("shop/query/one", None)
    events = world.until(
        "/api/history", lambda answer: answer["events"] and answer["events"][0]["kind"] == "stopped"
    )
    assert [each["who"] for each in events["events"][:2]] == ["shop/query/one", "shop/query/one"]


def test_what_happened_before_a_console_was_started_is_seen_in_it(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    now = time.time_ns() // 1_000_000
    for partitions in (3, 1):
        working = [
            {"partition": n, "state": "working", "remaining": 0, "total": 0} for n in range(partitions)
        ]
        world.tell("shop/query/past", status_with(at=now, started_at=now, partitions=working))
    world.tell("shop/query/past", None)

    def of_the_past(answer: Any) -> list[tuple[str, str]]:
        return [(each["kind"], each["text"]) for each in answer["events"] if each["who"] == "shop/query/past"]

    with console_of(broker, world.statuses.name, tmp_path, {"CONSOLE_TOKEN": TOKEN}) as (later, _):
        later.headers["Authorization"] = f"Bearer {TOKEN}"
        events = wait_until(lambda: of_the_past(later.get("/api/history").json()))
    assert events == [
        ("stopped", "stopped in order, or has been silent for a day"),
        ("rebalance", "gave 1, 2; has 1"),
        ("started", "started, process 7"),
    ]


def test_a_status_that_cannot_be_read_hides_no_other(world: World) -> None:
    bad = Stream(world.statuses.name, key=Bytes(), value=Bytes())
    with Emitter(bad, world.kafka) as emitter:
        emitter.emit_now(b"\xff", b"no status")
    now = time.time_ns() // 1_000_000
    world.tell("shop/view/two", status_with(role="view", at=now, started_at=now))
    world.until("/api/fleet", lambda answer: "shop/view/two" in {each["key"] for each in answer["instances"]})
    world.tell("shop/view/two", None)


def test_lags_are_reported_by_partition(world: World) -> None:
    found = world.until("/api/lags", lambda answer: answer["lags"])["lags"]
    assert {each["group"] for each in found} == {world.group.name}


def test_the_ends_of_transactions_are_no_lag_as_for_the_command_line(world: World) -> None:
    topics = Topics(world.kafka.bootstrap_servers)
    topic, group = topics.create("written", partitions=1), topics.name("reads")
    servers = {"bootstrap.servers": world.kafka.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": topics.name("writer")})
    producer.init_transactions(60)
    for value in (b"a", b"b", b"c"):
        producer.begin_transaction()
        producer.produce(topic, value, b"key")
        producer.commit_transaction(60)
    admin = world.kafka.admin()
    now = time.time_ns() // 1_000_000
    try:
        for committed, records in ((5, 0), (3, 1)):  # of offsets 0 to 5; 1, 3 and 5 are markers
            admin.set_offsets(group, {TopicPartition(topic, 0): Committed(NextOffset(committed))})
            inputs = [{"topic": topic, "partition": 0, "lag": 6 - committed, "records": 3}]
            report = status_with(role="processor", group=group, at=now, started_at=now, inputs=inputs)
            world.tell("shop/processor/marks", report)

            def shown(answer: Any, records: int = records) -> bool:
                found = {each["key"]: each["lag"] for each in answer["instances"]}
                return found.get("shop/processor/marks") == records

            world.until("/api/fleet", shown)
    finally:
        world.tell("shop/processor/marks", None)
        admin.close()
        topics.delete_all()


def next_event(lines: Any, name: str) -> Any:
    for line in lines:
        if line == f"event: {name}":
            return json.loads(next(lines).removeprefix("data: "))
    raise AssertionError("the stream has ended")


def test_the_picture_comes_again_every_second(world: World) -> None:
    with world.http.stream("GET", "/api/events") as answer:
        lines = answer.iter_lines()
        first, second = (next_event(lines, "fleet") for _ in range(2))
    assert first["now"] < second["now"]


def test_the_last_records_of_a_topic_come_first(world: World) -> None:
    found = world.get(f"/api/topics/{world.clicks.name}/records", limit=2)["records"]
    assert len(found) == 2
    assert found[0]["key"]["value"] == "eve"
    assert found[0]["value"] == {"type": "text", "value": "<img src=x onerror=alert(1)>"}
    assert found[1]["value"]["type"] == "UserClick"


def test_records_are_found_by_offset_and_partition(world: World) -> None:
    path = f"/api/topics/{world.clicks.name}/records"
    found = world.get(path, offset=0)["records"]
    assert len(found) == 4
    (place,) = {each["partition"] for each in found if each["key"]["value"] == "alice"}
    assert {each["partition"] for each in world.get(path, offset=0, partition=place)["records"]} == {place}
    assert world.get(path, offset=10**9)["records"] == []


def test_records_are_found_by_time(world: World) -> None:
    path = f"/api/topics/{world.clicks.name}/records"
    first, *others = world.get(path, since=0)["records"]
    assert len(others) == 3
    assert world.get(path, since=first["timestamp"] + 3_600_000)["records"] == []


def test_a_table_whose_end_is_a_transaction_is_read_whole(world: World) -> None:
    found = world.get(f"/api/topics/{world.group.table.name}/records", limit=50)["records"]
    assert {each["key"]["value"] for each in found} == {"alice", "bob"}


def test_rows_come_by_pages_and_prefix(world: World) -> None:
    path = f"/api/tables/{world.group.table.name}/rows"
    first = world.get(path, limit=1)
    assert [row["key"]["value"] for row in first["rows"]] == ["alice"]
    second = world.get(path, limit=1, after=first["next"])
    assert [(row["key"]["value"], row["value"]["value"]) for row in second["rows"]] == [("bob", 1)]
    assert second["next"] is None
    assert [row["key"]["value"] for row in world.get(path, prefix="bo")["rows"]] == ["bob"]
    assert world.get(path, prefix="zoe")["rows"] == []
    assert world.get(path, prefix="\U0001f600" * 200, after="ff" * 4096)["rows"] == []


def test_rows_are_shown_as_they_change(world: World) -> None:
    path = f"/api/tables/{world.group.table.name}"
    before = {row["key"]["value"]: row["value"]["value"] for row in world.get(f"{path}/rows")["rows"]}
    with world.http.stream("GET", f"{path}/events", params={"prefix": "al"}) as answer:
        lines = answer.iter_lines()
        next(lines)  # the stream has begun, so it misses nothing
        world.emit("bob", "alice")
        (row,) = next_event(lines, "rows")["rows"]
    assert row["key"]["value"] == "alice"
    assert row["value"]["value"] == before["alice"] + 1


def test_a_dead_letter_is_shown_with_its_reason(world: World) -> None:
    (letter,) = world.until(f"/api/letters/{world.group.name}", lambda answer: answer["letters"])["letters"]
    assert letter["error"] == "DeserializationError"
    assert letter["origin"]["topic"] == world.clicks.name
    assert letter["value"]["value"] == "<img src=x onerror=alert(1)>"
    assert letter["raw"]["key"] == b"eve".hex()
    assert letter["replayed"] is None


def test_actions_are_refused_where_they_are_off(world: World) -> None:
    path, body = f"/api/letters/{world.group.name}/replay", {"letters": ["0:0"]}
    answer = world.http.post(path, json=body)
    assert answer.status_code == 403
    assert "scope 'replay'" in answer.json()["detail"]  # the token that a console prints is for reading
    nothing: Any = None
    parts = Parts(nothing, nothing, nothing, nothing, nothing, nothing, nothing, actions=False)
    server = HttpServer(build_web(parts, ready=lambda: True, metrics=lambda: b""), "127.0.0.1", 0)
    try:
        answer = httpx.post(f"{server.start()}{path}", json=body, timeout=30)
    finally:
        server.stop()
    assert answer.status_code == 403
    assert "CONSOLE_ACTIONS" in answer.json()["detail"]


def test_a_letter_is_sent_again_once(world: World) -> None:
    path = f"/api/letters/{world.group.name}"
    (letter,) = world.signed.get(path).json()["letters"]
    name = letter["letter"]
    answers = [world.signed.post(f"{path}/replay", json={"letters": [name]}).json() for _ in range(2)]
    assert answers == [
        {"sent": [name], "before": [], "rows": []},
        {"sent": [], "before": [name], "rows": []},
    ]

    def came_back() -> Any:
        found = {each["letter"]: each for each in world.signed.get(path).json()["letters"]}
        return len(found) == 2 and found

    found = wait_until(came_back)
    assert found[name]["replayed"] is not None
    (other,) = [each for each in found.values() if each["letter"] != name]
    assert (other["attempt"], other["origin"]) == (2, letter["origin"])


def test_letters_that_hold_timers_are_named_and_not_sent(world: World) -> None:
    topics = Topics(world.kafka.bootstrap_servers)
    group = topics.name("reminders")
    topics.create("reminders-retry", partitions=1)
    letters = topics.create("reminders-dead-letters", partitions=1)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers})
    for topic, offset in ((b"events", b"5"), (f"{group}-timers".encode(), b"-1")):
        origin = {"topic": topic, "partition": b"0", "offset": offset}
        headers: Any = [(f"streamtable-origin-{name}", value) for name, value in origin.items()]
        producer.produce(letters, b"value", b"key", 0, headers=headers)
    assert producer.flush(30) == 0
    path = f"/api/letters/{group}/replay"
    sent = world.signed.post(path, json={"letters": ["0:0", "0:1"]}).json()
    assert sent == {"sent": ["0:0"], "before": [], "rows": ["0:1"]}
    alone = world.signed.post(path, json={"letters": ["0:1"]})
    assert alone.status_code == 409
    assert "holds a timer" in alone.json()["detail"]


def test_letters_that_are_not_there_are_not_sent(world: World) -> None:
    path = f"/api/letters/{world.group.name}/replay"
    answer = world.signed.post(path, json={"letters": ["0:999999"]})
    assert answer.status_code == 409
    assert "nothing was sent" in answer.json()["detail"]


def test_runs_of_jobs_are_listed_the_latest_first_and_whole_one_by_one(world: World) -> None:
    found = {"partition": 3, "key": "alice", "difference": "different", "expected": "3", "live": "2"}
    inputs = [{"topic": world.clicks.name, "partition": 0, "start": 5, "end": 9}]
    audit = run_with(
        run="audit-1", started_at=2_000_000, state="different", differences=1, keys=[found], inputs=inputs
    )
    for run in (audit, run_with(run="etl:1", job="etl", differences=-1)):
        world.tell_run(run)
    runs = world.until("/api/runs", lambda answer: len(answer["runs"]) == 2)["runs"]
    assert [(run["run"], run["state"], run["differences"]) for run in runs] == [
        ("audit-1", "different", 1),
        ("etl:1", "done", -1),
    ]
    assert not {"inputs", "keys"} & runs[0].keys()
    assert world.get("/api/runs", limit=1)["runs"] == runs[:1]
    whole = world.get("/api/runs/audit-1")
    assert (whole["keys"], whole["inputs"]) == ([found], inputs)


def test_a_run_that_goes_on_and_tells_nothing_for_a_minute_was_killed(world: World) -> None:
    now = time.time_ns() // 1_000_000
    for name, at in (("alive", now - 30_000), ("dead", now - 61_000)):
        world.tell_run(run_with(run=name, state="running", started_at=at, at=at, finished_at=0))
    world.until("/api/runs/dead", lambda run: run["state"] == "killed")
    assert world.get("/api/runs/alive")["state"] == "running"


def test_a_run_that_cannot_be_read_hides_no_other(world: World) -> None:
    with Emitter(Stream(world.runs.name, key=Bytes(), value=Bytes()), world.kafka) as emitter:
        emitter.emit_now(b"\xff", b"no run")
    world.tell_run(run_with(run="after"))
    world.until("/api/runs/after", lambda run: run["run"] == "after")


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/api/fleet", models.Fleet),
        ("/api/history", models.Events),
        ("/api/lags", models.Lags),
        ("/api/topics/{clicks}/records", models.Records),
        ("/api/tables/{table}/rows", models.Rows),
        ("/api/letters/{group}", models.Letters),
        ("/api/runs", models.Runs),
        ("/api/runs/audit-1", models.WholeRun),
    ],
)
def test_an_answer_has_what_openapi_describes_and_nothing_else(
    world: World, path: str, model: type[BaseModel]
) -> None:
    names = {"clicks": world.clicks.name, "table": world.group.table.name, "group": world.group.name}
    answer = world.get(path.format(**names))
    assert model.model_validate(answer).model_dump(mode="json", exclude_unset=True) == answer


def test_where_keys_are_asked_for_only_the_page_is_public(world: World) -> None:
    bare = httpx.Client(base_url=world.signed.base_url, timeout=30)
    with bare:
        for path in PAGE:
            assert bare.get(path).status_code == 200
        for path in ("/api/fleet", "/api/history", f"/api/topics/{world.clicks.name}/records", "/api/events"):
            assert bare.get(path).status_code == 401
        assert (
            bare.post(f"/api/letters/{world.group.name}/replay", json={"letters": ["0:0"]}).status_code == 401
        )


def test_without_keys_only_the_holder_of_the_printed_token_reads(world: World) -> None:
    with httpx.Client(base_url=world.http.base_url, timeout=30) as bare:
        for path in PAGE:
            assert bare.get(path).status_code == 200
        for path in (
            "/api/fleet",
            f"/api/topics/{world.clicks.name}/records",
            "/api/events",
            "/openapi.json",
        ):
            assert bare.get(path).status_code == 401
            assert bare.get(path, headers={"Authorization": "Bearer guessed"}).status_code == 401
        wrong = bare.get("/?code=guessed")
        assert (wrong.status_code, wrong.headers["location"]) == (303, "/")
        assert "set-cookie" not in wrong.headers
        url = world.sign_in_url
        signed_in = bare.get(url)
        cookie = signed_in.headers["set-cookie"]
        assert url.partition("=")[2] not in cookie
        assert TOKEN not in cookie
        assert signed_in.headers["location"] == "/"
        assert f"-{bare.base_url.port}=" in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert bare.get("/api/fleet").status_code == 200
        assert bare.get("/?code=guessed&code=guessed").status_code == 422
        assert bare.get("/app.js?code=guessed").status_code == 422
        bare.cookies.clear()
        assert "set-cookie" not in bare.get(url).headers  # a code is valid once
        assert bare.get("/api/fleet").status_code == 401
        assert world.sign_in_url != url


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/topics/nowhere/records", 404),
        ("/api/tables/nowhere/rows", 404),
        ("/api/tables/nowhere/events", 404),
        ("/api/letters/nowhere", 404),
        ("/api/runs/nowhere", 404),
        ("/api/runs?limit=501", 422),
        ("/api/topics/a%2fb/records", 400),
        ("/api/topics/<script>/records", 422),
        ("/api/topics/{clicks}/records?limit=0", 422),
        ("/api/topics/{clicks}/records?limit=501", 422),
        ("/api/topics/{clicks}/records?offset=1&since=1", 422),
        ("/api/topics/{clicks}/records?partition=99", 404),
        ("/api/topics/{clicks}/records?offset=1e3", 422),
        ("/api/topics/{clicks}/records?what=1", 422),
        ("/api/tables/{clicks}/rows", 422),
        ("/api/tables/{table}/rows?after=zz", 422),
        ("/api/tables/{table}/rows?prefix=%00", 400),
    ],
)
def test_a_wrong_question_is_answered_with_a_problem_that_quotes_nothing(
    world: World, path: str, status: int
) -> None:
    answer = world.http.get(path.format(clicks=world.clicks.name, table=world.group.table.name))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert "script" not in answer.text
    assert "nowhere" not in answer.text


@pytest.mark.parametrize("body", [{}, {"letters": []}, {"letters": ["x"]}, {"letters": ["0:0"], "more": 1}])
def test_a_wrong_body_is_refused(world: World, body: dict[str, Any]) -> None:
    assert world.signed.post(f"/api/letters/{world.group.name}/replay", json=body).status_code == 422


def test_the_page_allows_nothing_from_elsewhere_and_nothing_inline(world: World) -> None:
    answer = world.http.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<style" not in answer.text
    assert "onclick=" not in answer.text

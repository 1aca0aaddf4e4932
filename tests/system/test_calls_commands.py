"""`streamtable calls` beside a group that runs, and while it is stopped; and the replay of the dead letters of calls."""

import json
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import typer
from tests.system.bench import Bench, until
from typer.testing import CliRunner, Result

from streamtable import Context, Group, Input, Json, OnError, Output, Persist, Stream, String
from streamtable.errors import StateMeaningChanged
from streamtable_calls import Call, Retry
from streamtable_calls.commands import app as calls_app
from streamtable_cli.main import app as streamtable


class Api:
    """An API that refuses requests until it is told to answer.

    Attributes:
        asked: The requests, in the order of the attempts.
    """

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[Any] = []

    async def ask(self, request: Any) -> Any:
        self.asked.append(request)
        if not self.answers.is_set():
            raise ConnectionError("the API is down")
        return request


def group_of(bench: Bench, api: Api, *names: str, **given: Any) -> Group[str, Any]:
    """Return a group that makes a call of the first name for each record."""
    results = Stream[str, Any](bench.name("results"), String(), Json())

    def answered(ctx: Context[str, Any], request: Any, result: Any) -> None:
        ctx.emit(results, ctx.key, result)

    retry = Retry(first=timedelta(hours=1), most=timedelta(hours=1))
    calls: list[Call[str, Any, Any, Any]] = [
        Call(name, api.ask, request=Json(), response=Json(), then=answered, **{"retry": retry, **given})
        for name in names
    ]

    def handle(ctx: Context[str, Any], request: Any) -> None:
        ctx.call(calls[0], request)

    events = Stream[str, Any](bench.name("in"), String(), Json())
    return Group(
        bench.name("g"),
        Input(events, handle, on_error=OnError.DEAD_LETTER),
        *calls,
        Output(results),
        Persist(Json()),
    )


Run = Callable[..., Result]


@pytest.fixture
def run(bench: Bench) -> Run:
    """Runs `streamtable calls`, and other commands of `streamtable`."""
    main = typer.Typer()
    main.add_typer(calls_app, name="calls")

    def run(*arguments: str) -> Result:
        command = main if arguments[0] == "calls" else streamtable
        env = {"STREAMTABLE_BOOTSTRAP_SERVERS": bench.kafka.bootstrap_servers, "COLUMNS": "200"}
        return CliRunner().invoke(command, list(arguments), env=env)

    return run


@pytest.fixture
def api() -> Api:
    return Api()


def send(bench: Bench, *orders: tuple[str, Any]) -> None:
    bench.send(bench.name("in"), *((key, json.dumps(order)) for key, order in orders))


def pending(run: Run, group: Group[str, Any]) -> Sequence[dict[str, Any]]:
    """Return what `list --json` says."""
    result = run("calls", "list", group.name, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def results(bench: Bench) -> list[Any]:
    return [json.loads(record.value or b"") for record in bench.read(bench.name("results"))]


def test_calls_that_wait_are_listed_and_tried_at_once_beside_a_group_that_runs(
    bench: Bench, api: Api, run: Run
) -> None:
    group = group_of(bench, api, "ask")
    bench.create(group)
    send(bench, ("a", 1), ("a", 2), ("b", 3))
    with bench.run(group):
        until(
            lambda: sorted(each["attempts"] for each in pending(run, group)) == [0, 1, 1], "two have failed"
        )
        first, second, third = pending(run, group)
        assert (first["call"], first["key"]["value"], first["error"]) == (
            "ask",
            "a",
            "ConnectionError: the API is down",
        )
        assert first["id"].startswith(f"{group.name}/0/")
        assert (second["error"], second["attempts"]) == (None, 0)
        assert 0 <= third["age_seconds"] < 600
        examined = run("doctor", "--group", group.name, "--over", "0", "--rows", "0", "--json").stdout
        (finding,) = [each for each in json.loads(examined) if each["subject"] == f"call {group.name} ask"]
        assert finding["level"] == "warning"
        assert finding["fact"].startswith("2 attempted calls pending, the oldest for ")
        assert finding["fact"].endswith("ConnectionError: the API is down")
        table = run("calls", "list", group.name).stdout
        assert "the API is down" in table
        assert third["id"] in table
        api.answers.set()
        tried = run("calls", "retry-now", group.name, "ask", "--json")
        assert json.loads(tried.stdout)["calls"] == [first["id"], third["id"]]
        until(lambda: sorted(results(bench)) == [1, 2, 3], "all have results")
        until(lambda: not pending(run, group), "none is pending")


def test_calls_are_dropped_by_a_group_that_runs(bench: Bench, api: Api, run: Run) -> None:
    group = group_of(bench, api, "ask")
    bench.create(group)
    send(bench, ("a", 1), ("a", 2), ("b", 3))
    with bench.run(group):
        until(
            lambda: sorted(each["attempts"] for each in pending(run, group)) == [0, 1, 1], "two have failed"
        )
        first, second, _ = pending(run, group)
        assert run("calls", "drop", group.name, "--id", first["id"]).exit_code != 0  # it has to be confirmed
        assert run("calls", "drop", group.name, "--id", first["id"], "--yes").exit_code == 0
        until(lambda: 2 in api.asked, "the next one of its key is tried")
        assert run("calls", "drop", group.name, "other", "--yes").exit_code == 0
        until(lambda: pending(run, group)[0]["id"] == second["id"], "it is dropped")
        assert len(pending(run, group)) == 2
        api.answers.set()
        run("calls", "retry-now", group.name)
        until(lambda: sorted(results(bench)) == [2, 3], "the others have results")


@pytest.mark.parametrize("state", ["state", "empty"])
def test_calls_of_a_removed_call_are_dropped_while_the_group_is_stopped(
    bench: Bench, api: Api, run: Run, state: str
) -> None:
    before, after = group_of(bench, api, "ask"), group_of(bench, api, "tell")
    bench.create(before)
    send(bench, ("a", 1), ("b", 2))
    with bench.run(before):
        until(lambda: [each["attempts"] for each in pending(run, before)] == [1, 1], "both have failed")
    failed = bench.run(after).failure()
    assert isinstance(failed, StateMeaningChanged)
    assert "2 calls of 'ask' are pending" in str(failed)
    assert f"streamtable calls drop {after.name} ask" in str(failed)
    assert run("calls", "drop", after.name, "ask", "--yes").exit_code == 0
    assert pending(run, after) == []
    api.answers.set()
    send(bench, ("a", 3))
    with bench.run(after, state=state):
        until(lambda: results(bench) == [3], "the group goes on without them")


def test_a_call_that_has_failed_is_replayed_from_its_dead_letter(bench: Bench, api: Api, run: Run) -> None:
    group = group_of(bench, api, "ask", retry=None)
    bench.create(group)
    send(bench, ("a", 1), ("b", 2))
    with bench.run(group):
        until(lambda: len(bench.read(group.dead_letters)) == 2, "both are dead letters")
        listed = [
            json.loads(line) for line in run("dead-letters", "list", group.name, "--json").stdout.splitlines()
        ]
        assert [letter["error"] for letter in listed] == ["CallFailed"] * 2
        api.answers.set()
        replayed = json.loads(run("dead-letters", "replay", group.name, "--all", "--json").stdout)
        assert (len(replayed["sent"]), replayed["rows"]) == (2, [])
        until(lambda: sorted(results(bench)) == [1, 2], "both have results")
        assert json.loads(run("dead-letters", "replay", group.name, "--all", "--json").stdout)["sent"] == []

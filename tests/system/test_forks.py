"""An object made before a fork says in the child that it has to be made there, and never waits for ever."""

import asyncio
import multiprocessing as mp
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from tests.system.bench import Bench

from streamtable import Ack, App, Long, String, Table
from streamtable.errors import StreamtableError
from streamtable_query import Query, QueryServer, SharedView

Ask = Callable[[Any], object]


def in_a_child(ask: Callable[[], object]) -> str:
    """Return the outcome of a call in a forked process: its error, or its result."""
    answers, context = mp.get_context("fork").Queue(), mp.get_context("fork")

    def work() -> None:
        try:
            answers.put(f"returned {ask()!r}")
        except StreamtableError as error:
            answers.put(f"{type(error).__name__}: {error}")

    child = context.Process(target=work)
    child.start()
    try:
        outcome: str = answers.get(timeout=30)
        return outcome
    finally:
        child.join(10)
        child.kill()


@pytest.fixture
def made(bench: Bench) -> Iterator[dict[str, Any]]:
    """One of each, made in this process."""
    group = bench.counting()
    bench.send(bench.name("in"), ("a", "x"))
    with ExitStack() as stack:
        app = stack.enter_context(App(bench.kafka, bench.folder))
        view = app.view(group.table)
        view.wait_ready(60)
        yield {
            "app": app,
            "emitter": stack.enter_context(app.emitter(bench.stream())),
            "view": view,
            "watch": stack.enter_context(view.watch()),
            "tail": app.tail(bench.stream()),
            "processor": app.processor(group, instance_id="a"),
            "query": stack.enter_context(Query(bench.kafka, group, group.table)),
            "shared": stack.enter_context(
                SharedView(app, group.table, bench.name("shared"), "127.0.0.1:1", serve=False)
            ),
        }
        assert view.get("a") is None  # it still works here
        assert view.ready


CALLS: dict[str, tuple[str, Ask]] = {
    "emit": ("emitter", lambda each: each.emit("a", "x")),
    "emit_now": ("emitter", lambda each: each.emit_now("a", "x")),
    "flush": ("emitter", lambda each: each.flush()),
    "get": ("view", lambda each: each.get("a")),
    "answer": ("view", lambda each: each.answer("a", stale_ok=True)),
    "range": ("view", lambda each: each.range()),
    "snapshot": ("view", lambda each: each.snapshot(0).__enter__()),
    "ready": ("view", lambda each: each.ready),
    "wait_ready": ("view", lambda each: each.wait_ready()),
    "wait_for": ("view", lambda each: each.wait_for(Ack("in", 0, 0))),
    "position": ("view", lambda each: each.position()),
    "watch": ("view", lambda each: each.watch()),
    "next": ("watch", lambda each: each.next()),
    "next_async": ("watch", lambda each: asyncio.run(each.next_async())),
    "follow": ("tail", lambda each: each.follow("a")),
    "run": ("processor", lambda each: each.run()),
    "ask for a key": ("query", lambda each: each.get("a")),
    "ask for a range": ("query", lambda each: list(each.range())),
    "ask for a row of a share": ("shared", lambda each: each.get("a")),
    "wait for a share": ("shared", lambda each: each.wait_ready(60)),
}


@pytest.mark.parametrize("call", CALLS)
def test_it_is_refused_in_a_forked_process_with_what_to_do(made: dict[str, Any], call: str) -> None:
    name, ask = CALLS[call]
    outcome = in_a_child(lambda: ask(made[name]))
    assert outcome.startswith("UsedAfterFork: the "), outcome
    assert "make it after the fork" in outcome


def test_another_view_of_an_app_whose_views_were_opened_before_the_fork_is_refused(
    made: dict[str, Any],
) -> None:
    outcome = in_a_child(lambda: made["app"].view(Table("other", String(), Long())))
    assert outcome.startswith("UsedAfterFork: the App with its views "), outcome


@pytest.mark.parametrize("name", ["emitter", "view", "tail", "query", "shared", "app"])
def test_closing_it_in_a_forked_process_returns_and_leaves_the_parents_alone(
    made: dict[str, Any], name: str
) -> None:
    assert in_a_child(made[name].close) == "returned None"
    made["emitter"].emit("a", "x").result(30)
    made["view"].get("a")


def test_closing_a_query_in_a_forked_process_does_not_touch_its_client_of_kafka(made: dict[str, Any]) -> None:
    # The fork may come while another thread asks: in the child its lock is never released, and the client, whose threads the
    # child has not, may crash when it is destroyed.
    with made["query"]._cluster._asking:
        assert in_a_child(made["query"].close) == "returned None"


def test_stopping_a_query_server_in_a_forked_process_leaves_the_parents_alone() -> None:
    with QueryServer([], "127.0.0.1:0") as server:
        assert in_a_child(server.stop) == "returned None"
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            grpc.channel_ready_future(channel).result(30)


PREFORK = """
import os, sys
from streamtable import App, Long, String, Table
servers, folder, table, first = sys.argv[1:]
app, rows = App(servers, folder), Table(table, String(), Long())
if first == "view":
    with app.view(rows) as view:
        view.wait_ready(60)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    with app.view(rows) as view:
        view.wait_ready(60)
        print("ready in the child", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("first", "said"),
    [("nothing", "ready in the child"), ("view", "UsedAfterFork RocksDB, with its threads,")],
)
def test_an_app_is_used_after_a_fork_if_it_had_no_view_before_even_a_closed_one(
    bench: Bench, first: str, said: str
) -> None:
    group = bench.counting()
    arguments = [bench.kafka.bootstrap_servers, str(bench.folder), group.table.name, first]
    ended = subprocess.run(
        [sys.executable, "-c", PREFORK, *arguments], stdout=subprocess.PIPE, text=True, timeout=90, check=True
    )
    assert ended.stdout.startswith(said)

"""The pages on captured tables and Kafka Connect: their programs and connectors run against a real PostgreSQL and a real Connect."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.docs.pages import steps_of

from localkafka.broker import Broker
from localkafka.connect import Connector, ConnectWorker
from localkafka.errors import SetupError
from localkafka.fixtures import OwnBroker, Topics
from localkafka.process import Child
from localkafka.waiting import wait_until
from localstores.postgres import LOGICAL, PostgresServer, find_program
from streamtable import App, Context, Group, Input, Json, Persist, Stream, String

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial/capture.md").read_text("utf-8")
NEIGHBOUR = (DOCS / "how-to/use-kafka-connect.md").read_text("utf-8")
RUNBOOK = (DOCS / "operate/capture.md").read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    try:
        find_program("initdb")
    except SetupError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="streamtable-postgres-") as name:
        Path(name).chmod(0o755)  # for the user `postgres`
        with PostgresServer(Path(name) / "data", options=LOGICAL) as server:
            with psycopg.connect(server.url, autocommit=True) as maintenance:
                maintenance.execute("create database shop")
            yield server


def test_the_tutorials_program_joins_orders_with_the_rows_of_the_database(
    own_broker: OwnBroker, database: PostgresServer, tmp_path: Path
) -> None:
    broker, (before, after) = own_broker(), blocks(TUTORIAL, "sql")
    for step in steps_of(TUTORIAL):
        if step.title is not None:
            text = step.text.replace("127.0.0.1:9092", broker.bootstrap_servers).replace(
                "5432", str(database.port)
            )
            (tmp_path / step.title).write_text(text)
    with psycopg.connect(database.url_of("shop"), autocommit=True) as shop:
        shop.execute(before.encode())
        log = tmp_path / "shop.log"
        # By a shell, as a child has the working directory of the test.
        program = Child(["sh", "-c", f"cd {tmp_path} && exec {sys.executable} shop.py"], log)
        try:
            wait_until(lambda: b"task started" in log.read_bytes(), 30, "the tasks of shop.py started")
            connector = Connector.read(tmp_path / "postgres.json")
            with ConnectWorker(tmp_path / "connect", broker.bootstrap_servers, [connector], brief=True):
                shop.execute(after.encode())
                command = [sys.executable, "-X", "faulthandler", "ask.py"]
                printed = ""
                with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as asked:
                    try:
                        printed, _ = asked.communicate(timeout=40)
                    except subprocess.TimeoutExpired:
                        asked.send_signal(signal.SIGABRT)  # it then says where it stands
        finally:
            program.kill()
    assert printed == blocks(TUTORIAL, "text")[0]


def test_the_runbooks_query_shows_how_far_a_slot_is_behind(database: PostgresServer) -> None:
    with psycopg.connect(database.url, autocommit=True) as shop:
        shop.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
        rows = shop.execute(blocks(RUNBOOK, "sql")[0].encode()).fetchall()
    assert [row[:2] for row in rows] == [("s", False)]


def test_connects_file_sinks_read_a_table_and_a_stream_with_schemas_as_the_page_says(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    def keep(ctx: Context[str, Any], event: Any) -> None:
        ctx.set(event)

    arrivals: Stream[str, Any] = Stream(topics.create("arrivals"), key=String(), value=Json())
    group = Group(topics.name("stock"), Input(arrivals, keep), Persist(Json()))
    step = next(each for each in steps_of(NEIGHBOUR) if each.title == "file-sink.json")
    declared = json.loads(step.text)
    out, with_schemas = tmp_path / "stock.txt", tmp_path / "prices.txt"
    program: dict[str, Any] = {}
    exec(blocks(NEIGHBOUR, "python")[0].replace('"prices"', repr(topics.create("prices"))), program)
    declared["config"] |= {
        "topics": group.table.name,
        "file": str(out),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    with App(broker.bootstrap_servers, state_dir=str(tmp_path / "state")) as app:
        app.create_topics(group)
        processor = app.processor(group)
        with app.emitter(arrivals) as emitter, app.emitter(program["PRICES"]) as prices:
            emitter.emit("book", {"count": 3})
            program["send"](prices, "book", 12.5)
        connectors = [
            Connector(topics.name("sink"), declared["config"]),
            Connector(
                topics.name("typed"),
                {
                    **declared["config"],
                    "topics": program["PRICES"].name,
                    "file": str(with_schemas),
                    "value.converter.schemas.enable": "true",
                },
            ),
        ]
        with ConnectWorker(tmp_path / "connect", broker.bootstrap_servers, connectors, brief=True):
            thread = threading.Thread(target=processor.run)
            thread.start()
            try:
                wait_until(
                    lambda: out.exists() and out.read_text() == "{count=3}\n", 60, "the row in the file"
                )
                wait_until(
                    lambda: with_schemas.exists() and with_schemas.read_text() == "Struct{price=12.5}\n",
                    60,
                    "the event in the file",
                )
            finally:
                processor.stop()
                thread.join()

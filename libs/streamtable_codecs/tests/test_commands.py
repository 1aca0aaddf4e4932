"""`streamtable schemas plan|apply|check`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from libs.streamtable_codecs.tests.stand_in import StandIn, serving
from typer.testing import CliRunner

from streamtable_cli.main import Boundary
from streamtable_codecs.commands import app

PROGRAM = """
import msgspec
from streamtable import Avro, Group, Input, Loop, Output, Persist, State, Stream, String
from streamtable_codecs import Confluent, HttpRegistry, JsonSchema

class Order(msgspec.Struct):
    id: {kind}

REGISTRY = HttpRegistry("{url}")
ORDERS = Stream("orders", String(), JsonSchema(Order, Confluent(REGISTRY)))
LOOP = Stream("g-loop", String(), JsonSchema(Order, Confluent(REGISTRY)))
OUT = Stream("out", Avro("long", Confluent(REGISTRY)), JsonSchema(Order, Confluent(REGISTRY)))
GROUP = Group("g", Input(ORDERS, lambda ctx, order: None), Output(OUT), Persist(Avro("long", Confluent(REGISTRY))),
    State("kept", key=String(), value=Avro("long")), Loop(LOOP, lambda ctx, order: None))
"""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(folder: Path, server: StandIn, *arguments: str, kind: str = "str") -> tuple[int, str]:
    """Run the command for the program whose orders have ids of this type."""
    sys.modules.pop("shop_program", None)
    (folder / "shop_program.py").write_text(PROGRAM.format(url=server.url, kind=kind))
    for cached in (folder / "__pycache__").glob("shop_program*"):
        cached.unlink()
    main = typer.Typer(cls=Boundary)
    main.add_typer(app, name="schemas")
    result = CliRunner().invoke(
        main, ["schemas", *arguments, "--graph", "shop_program:GROUP"], env={"COLUMNS": "200"}
    )
    sys.modules["shop_program"].REGISTRY.close()
    return result.exit_code, result.output


def steps(output: str) -> dict[str, str]:
    return {each["subject"]: each["step"] for each in json.loads(output)}


def test_a_plan_names_the_missing_schemas_and_registers_none(folder: Path, server: StandIn) -> None:
    code, output = run(folder, server, "plan", "--json")
    assert code == 0
    subjects = ("out-key", "out-value", "g-loop-value", "g-table-value")
    assert steps(output) == dict.fromkeys(subjects, "register")
    assert steps(run(folder, server, "plan", "--json", "--inputs")[1])["orders-value"] == "register"
    assert server.subjects == {}


def test_what_was_applied_is_the_same_and_checked(folder: Path, server: StandIn) -> None:
    assert run(folder, server, "check")[0] == 2
    code, output = run(folder, server, "apply")
    assert code == 0
    assert "Order, JSON Schema" in output
    assert sorted(server.subjects) == ["g-loop-value", "g-table-value", "out-key", "out-value"]
    code, output = run(folder, server, "check")
    assert code == 0
    assert output.count("id ") == 4
    assert set(steps(run(folder, server, "plan", "--json")[1]).values()) == {"same"}


def test_of_a_change_that_the_registry_refuses_nothing_is_registered(folder: Path, server: StandIn) -> None:
    run(folder, server, "apply")
    before: Any = dict(server.subjects)
    for command in ("plan", "apply", "check"):
        code, output = run(folder, server, command, "--inputs", kind="int")
        assert code == 2
        assert "$.id: string was written, and integer is read" in output
    assert server.subjects == before


def test_a_change_that_fits_the_latest_version_alone_is_refused_by_a_rule_for_all_versions(
    folder: Path, server: StandIn
) -> None:
    run(folder, server, "apply")
    server.transitive = True
    empty = {"schema": '{"title":"Order","type":"object","properties":{}}', "schemaType": "JSON"}
    for subject in ("out-value", "g-loop-value"):
        assert server.answer("POST", f"/subjects/{subject}/versions", {}, empty)[0] == 200
    before = {subject: list(versions) for subject, versions in server.subjects.items()}
    for command in ("plan", "apply", "check"):
        code, output = run(folder, server, command, kind="int = 0")
        assert code == 2
        assert output.count("$.id: string was written, and integer is read") == 2
    assert server.subjects == before


def test_a_registry_that_is_away_ends_the_command_with_its_error(folder: Path, server: StandIn) -> None:
    server.away = True
    code, output = run(folder, server, "plan")
    assert code == 1
    assert "does not answer: status 503" in output

"""The generated records are current, cover all of Avro, and no schema loses the records of an earlier one."""

import copy
import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_type_hints

import pytest

from contracts.records import USER_CLICK, UserClick

CONTRACTS = Path(__file__).resolve().parents[1]

STATUS = {"type": "enum", "name": "Status", "symbols": ["NEW", "DONE"]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": 'An "order".',
    "fields": [
        {"name": "id", "type": "string", "doc": "Its number."},
        {"name": "status", "type": STATUS},
        {"name": "count", "type": "int"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    ],
}
ALL_TYPES = {
    "type": "record",
    "name": "AllTypes",
    "fields": [
        {"name": "a_null", "type": "null"},
        {"name": "a_boolean", "type": "boolean"},
        {"name": "an_int", "type": "int"},
        {"name": "a_long", "type": "long"},
        {"name": "a_float", "type": "float"},
        {"name": "a_double", "type": "double"},
        {"name": "a_bytes", "type": "bytes"},
        {"name": "a_string", "type": "string"},
        {"name": "a_fixed", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "an_enum", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "again", "type": "Colour"},
        {"name": "an_array", "type": {"type": "array", "items": {"type": "map", "values": ["null", "long"]}}},
        {
            "name": "inner",
            "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]},
        },
        {"name": "maybe", "type": ["null", "Inner", "int", "long"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "instant", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "later", "type": {"type": "long", "logicalType": "of-the-future"}},
    ],
}
KEYWORDS = {
    "type": "record",
    "name": "Odd",
    "fields": [{"name": "from", "type": "long"}, {"name": "x", "type": "int"}],
}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = spec_from_file_location("generate", CONTRACTS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path, stem: str, schema: Any, *history: Any) -> None:
    (folder / "history" / stem).mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.avsc").write_text(json.dumps(schema))
    for number, version in enumerate(history, 1):
        (folder / "history" / stem / f"{number}.avsc").write_text(json.dumps(version))


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "generated"}
    exec(code, names)
    return names


def changed(**changes: Any) -> dict[str, Any]:
    """The order with fields replaced, added, or (None) removed."""
    schema = copy.deepcopy(ORDER)
    fields = {entry["name"]: entry for entry in schema["fields"]}
    for name, entry in changes.items():
        if entry is None:
            del fields[name]
        else:
            fields[name] = {"name": name, **(entry if isinstance(entry, dict) else {"type": entry})}
    schema["fields"] = list(fields.values())
    return schema


def test_the_committed_records_are_current_and_released(generator: ModuleType) -> None:
    assert generator.check(generator.AVRO, generator.TARGET) == []


def test_the_constant_binds_row_type_and_schema() -> None:
    assert USER_CLICK.row is UserClick
    assert [entry["name"] for entry in json.loads(USER_CLICK.schema)["fields"]] == list(
        get_type_hints(UserClick)
    )
    assert USER_CLICK.schema in USER_CLICK.history
    assert "doc" not in json.loads(USER_CLICK.schema)


def test_every_avro_type_becomes_its_python_type(generator: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "all_types", ALL_TYPES, ALL_TYPES)
    code = generator.generate(generator.read_contracts(tmp_path))
    names = run(code)
    hints = {
        name: str(hint).replace("generated.", "") for name, hint in get_type_hints(names["AllTypes"]).items()
    }
    assert {name: hint.removeprefix("<class '").removesuffix("'>") for name, hint in hints.items()} == {
        "a_null": "NoneType",
        "a_boolean": "bool",
        "an_int": "int",
        "a_long": "int",
        "a_float": "float",
        "a_double": "float",
        "a_bytes": "bytes",
        "a_string": "str",
        "a_fixed": "bytes",
        "an_enum": "typing.Literal['RED', 'BLUE']",
        "again": "typing.Literal['RED', 'BLUE']",
        "an_array": "list[dict[str, int | None]]",
        "inner": "Inner",
        "maybe": "Inner | int | None",
        "day": "datetime.date",
        "instant": "datetime.datetime",
        "price": "decimal.Decimal",
        "key": "uuid.UUID | None",
        "later": "int",
    }
    assert get_args(names["Colour"]) == get_args(Literal["RED", "BLUE"])
    assert names["ALL_TYPES"].name == "AllTypes"
    assert json.loads(names["ALL_TYPES"].schema) == ALL_TYPES


def test_a_field_may_have_the_name_of_a_keyword(generator: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "odd", KEYWORDS, KEYWORDS)
    names = run(generator.generate(generator.read_contracts(tmp_path)))
    assert get_type_hints(names["Odd"]) == {"from": int, "x": int}


def test_text_from_a_schema_cannot_end_its_string_in_the_code(generator: ModuleType, tmp_path: Path) -> None:
    evil = changed(note={"type": "string", "default": "'''\"\"\"\\", "doc": '"""\\\nimport os'})
    write(tmp_path, "order", evil, evil)
    names = run(generator.generate(generator.read_contracts(tmp_path)))
    assert json.loads(names["ORDER"].schema)["fields"][-1]["default"] == "'''\"\"\"\\"
    assert "os" not in names


def test_two_types_of_one_name_are_refused(generator: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "a", ORDER, ORDER)
    write(tmp_path, "b", {**changed(extra="int"), "namespace": "elsewhere"})
    with pytest.raises(SystemExit, match="two different types"):
        generator.generate(generator.read_contracts(tmp_path))


def test_a_record_that_contains_itself_is_refused(generator: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "order", changed(parent=["null", "Order"]))
    with pytest.raises(SystemExit, match="contains itself"):
        generator.generate(generator.read_contracts(tmp_path))


@pytest.mark.parametrize(
    ("later", "problem"),
    [
        (changed(note="string"), "Order.note: added without a default; older records have no value for it"),
        (changed(id="long"), "Order.id: the type changed from string to long, which is no promotion"),
        (changed(count=["null", "string"]), "Order.count: int is no branch of the union any more"),
        (
            changed(status={"type": {**STATUS, "symbols": ["NEW"]}}),
            "Order.status: the symbol DONE was removed, and the enum has no default",
        ),
        (
            changed(hash={"type": {"type": "fixed", "name": "Hash", "size": 5}}),
            "Order.hash: the size changed from 4 to 5",
        ),
        (
            changed(status={"type": {**STATUS, "name": "State"}}),
            "Order.status: enum Status was renamed to shop.State without an alias",
        ),
        (
            changed() | {"name": "Purchase"},
            "Purchase: record Order was renamed to shop.Purchase without an alias",
        ),
    ],
)
def test_an_incompatible_change_is_refused_with_field_and_rule(
    generator: ModuleType, tmp_path: Path, later: Any, problem: str
) -> None:
    write(tmp_path, "order", later, ORDER)
    with pytest.raises(SystemExit) as refused:
        generator.release(tmp_path, "order")
    assert str(refused.value) == problem
    assert f"order.avsc cannot read version 1: {problem}" in generator.check(
        tmp_path, tmp_path / "records.py"
    )


@pytest.mark.parametrize(
    "later",
    [
        changed(note={"type": ["null", "string"], "default": None}),
        changed(count="long"),
        changed(count=["null", "double"]),
        changed(id=None),
        changed(count=None, amount={"type": "int", "aliases": ["count"]}),
        changed(status={"type": {**STATUS, "symbols": ["NEW", "DONE", "LOST"]}}),
        changed(status={"type": {**STATUS, "symbols": ["NEW"], "default": "NEW"}}),
        changed() | {"name": "Purchase", "aliases": ["Order"]},
    ],
)
def test_a_compatible_change_is_released_as_the_next_version(
    generator: ModuleType, tmp_path: Path, later: Any
) -> None:
    write(tmp_path, "order", later, ORDER)
    target = tmp_path / "records.py"
    target.write_text(generator.generate(generator.read_contracts(tmp_path)))
    assert [
        "differs from the latest released version" in text for text in generator.check(tmp_path, target)
    ] == [True]
    assert generator.release(tmp_path, "order").name == "2.avsc"
    assert generator.check(tmp_path, target) == [
        "records.py is not current: python libs/contracts/generate.py"
    ]
    target.write_text(generator.generate(generator.read_contracts(tmp_path)))
    assert generator.check(tmp_path, target) == []
    with pytest.raises(SystemExit, match="released already, as version 2"):
        generator.release(tmp_path, "order")


def test_documentation_may_change_without_a_release(generator: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "order", ORDER | {"doc": "Better words."}, ORDER)
    target = tmp_path / "records.py"
    target.write_text(generator.generate(generator.read_contracts(tmp_path)))
    assert generator.check(tmp_path, target) == []


def test_a_changed_unit_is_refused_though_the_bytes_are_alike(generator: ModuleType, tmp_path: Path) -> None:
    millis, micros = (
        {"type": {"type": "long", "logicalType": f"timestamp-{unit}"}} for unit in ("millis", "micros")
    )
    write(tmp_path, "order", changed(at=micros), changed(at=millis))
    with pytest.raises(SystemExit, match=r"Order\.at: the logical type changed from timestamp-millis"):
        generator.release(tmp_path, "order")


def test_a_gap_in_a_history_is_refused(generator: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "order", ORDER, ORDER, ORDER)
    (tmp_path / "history" / "order" / "1.avsc").unlink()
    with pytest.raises(SystemExit, match="without gaps"):
        generator.read_contracts(tmp_path)
    with pytest.raises(SystemExit, match=r"there is no purchase\.avsc"):
        generator.release(tmp_path / "history", "purchase")

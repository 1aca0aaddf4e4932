# ruff: noqa: INP001 - a script beside the package, not a module of it
"""Generate `contracts.records` from `proto/avro/*.avsc`, and guard what has been released.

    python libs/contracts/generate.py                  write records.py
    python libs/contracts/generate.py --check          fail if records.py or a released version is not current
    python libs/contracts/generate.py release NAME     release proto/avro/NAME.avsc as the next version

A released version is in `proto/avro/history/NAME/<n>.avsc` and never changes: topics keep records written with it, and
every later schema must be able to read them.
"""

import json
import re
import sys
from argparse import ArgumentParser
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path
from typing import Any

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

ROOT = Path(__file__).resolve().parents[2]
AVRO = ROOT / "proto" / "avro"
TARGET = Path(__file__).resolve().parent / "src" / "contracts" / "records.py"

HEADER = '''"""Typed records, generated from proto/avro by libs/contracts/generate.py. Do not edit."""
'''
PRIMITIVES = {
    "null": "None",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "str",
}
LOGICAL = {
    ("int", "date"): "datetime.date",
    ("int", "time-millis"): "datetime.time",
    ("long", "time-micros"): "datetime.time",
    ("long", "timestamp-millis"): "datetime.datetime",
    ("long", "timestamp-micros"): "datetime.datetime",
    ("long", "local-timestamp-millis"): "datetime.datetime",
    ("long", "local-timestamp-micros"): "datetime.datetime",
    ("string", "uuid"): "uuid.UUID",
    ("bytes", "decimal"): "decimal.Decimal",
    ("fixed", "decimal"): "decimal.Decimal",
}
PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


@dataclass(frozen=True)
class Contract:
    """A record schema with its released versions.

    Attributes:
        stem: The name of its file: "user_click".
        schema: The present schema as parsed JSON.
        history: The released versions as parsed JSON, oldest first.
    """

    stem: str
    schema: dict[str, Any]
    history: tuple[dict[str, Any], ...]


def read_contracts(folder: Path) -> list[Contract]:
    """Read all record schemas of a folder. A gap in the version numbers of a history is an error."""
    contracts = []
    for path in sorted(folder.glob("*.avsc")):
        released = {int(version.stem): version for version in (folder / "history" / path.stem).glob("*.avsc")}
        if sorted(released) != list(range(1, len(released) + 1)):
            raise SystemExit(
                f"history of {path.stem}: versions {sorted(released)}, must be 1, 2, 3 without gaps"
            )
        history = tuple(json.loads(released[n].read_text("utf-8")) for n in sorted(released))
        contracts.append(Contract(path.stem, json.loads(path.read_text("utf-8")), history))
    return contracts


# ---- rules --------------------------------------------------------------------------------------------------------


def kind(node: Any) -> str:
    if isinstance(node, list):
        return "union"
    return str(node["type"] if isinstance(node, dict) else node)


def resolve(schema: Any) -> Any:
    """Return the schema with names replaced by their definitions."""
    return parse_schema(json.loads(json.dumps(schema)), expand=True, _write_hint=False)


def violations(writer: Any, reader: Any, place: str = "") -> list[str]:
    """Return the reasons why `reader` cannot read all records written with `writer`. Both are resolved schemas."""
    written, expected = kind(writer), kind(reader)
    place = (
        place
        or str(reader.get("name", expected) if isinstance(reader, dict) else expected).rpartition(".")[2]
    )
    if written == "union":
        return [text for branch in writer for text in violations(branch, reader, place)]
    if expected == "union":
        if any(not violations(writer, branch, place) for branch in reader):
            return []
        return [f"{place}: {written} is no branch of the union any more"]
    if written == expected:
        return _same_kind(written, writer, reader, place)
    if expected in PROMOTIONS.get(written, ()):
        return []
    return [f"{place}: the type changed from {written} to {expected}, which is no promotion"]


def _same_kind(written: str, writer: Any, reader: Any, place: str) -> list[str]:
    problems = _logical_change(writer, reader, place)
    if written in {"record", "enum", "fixed"}:
        old = writer["name"].rpartition(".")[2]
        names = {name.rpartition(".")[2] for name in (reader["name"], *reader.get("aliases", ()))}
        if old not in names:
            problems.append(f"{place}: {written} {old} was renamed to {reader['name']} without an alias")
    if written == "fixed" and writer["size"] != reader["size"]:
        problems.append(f"{place}: the size changed from {writer['size']} to {reader['size']}")
    if written == "enum" and "default" not in reader:
        gone = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
        problems += [
            f"{place}: the symbol {symbol} was removed, and the enum has no default" for symbol in gone
        ]
    if written == "array":
        problems += violations(writer["items"], reader["items"], f"{place}[]")
    if written == "map":
        problems += violations(writer["values"], reader["values"], f"{place}{{}}")
    if written == "record":
        problems += _fields(writer, reader, place)
    return problems


def _fields(writer: Any, reader: Any, place: str) -> list[str]:
    old = {entry["name"]: entry for entry in writer["fields"]}
    problems = []
    for entry in reader["fields"]:
        names = [name for name in (entry["name"], *entry.get("aliases", ())) if name in old]
        if names:
            problems += violations(old[names[0]]["type"], entry["type"], f"{place}.{entry['name']}")
        elif "default" not in entry:
            problems.append(
                f"{place}.{entry['name']}: added without a default; older records have no value for it"
            )
    return problems


def _logical_change(writer: Any, reader: Any, place: str) -> list[str]:
    def meaning(node: Any) -> tuple[Any, Any]:
        entry = node if isinstance(node, dict) else {}
        return entry.get("logicalType"), entry.get("scale", 0)

    old, new = meaning(writer), meaning(reader)
    if old == new or None in {old[0], new[0]}:
        return []
    return [f"{place}: the logical type changed from {old[0]} (scale {old[1]}) to {new[0]} (scale {new[1]})"]


def problems_of(contract: Contract) -> list[str]:
    """Return the problems of a contract: unreadable released versions, or an unreleased change."""
    present = resolve(contract.schema)
    problems = [
        f"{contract.stem}.avsc cannot read version {number}: {text}"
        for number, version in enumerate(contract.history, 1)
        for text in violations(resolve(version), present)
    ]
    if not contract.history or minified(contract.history[-1]) != minified(contract.schema):
        latest = f"history/{contract.stem}/{len(contract.history)}.avsc"
        problems.append(
            f"{contract.stem}.avsc differs from the latest released version ({latest}): "
            f"python libs/contracts/generate.py release {contract.stem}"
        )
    return problems


# ---- code ---------------------------------------------------------------------------------------------------------


def minified(schema: Any) -> str:
    """Return the schema as JSON text without spaces and docs; all that affects reading stays."""

    def bare(node: Any, *, default: bool = False) -> Any:
        if isinstance(node, list):
            return [bare(item, default=default) for item in node]
        if isinstance(node, dict):
            kept = {key: value for key, value in node.items() if default or key != "doc"}
            return {key: bare(value, default=default or key == "default") for key, value in kept.items()}
        return node

    return json.dumps(bare(schema), separators=(",", ":"), ensure_ascii=False)


@dataclass
class Module:
    """The definitions of the module that is generated, each after the definitions it refers to.

    Attributes:
        definitions: The code of each definition, by its Python name.
        origins: The schema of each definition, by its Python name: two schemas of one name must be the same.
    """

    definitions: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def type_of(self, node: Any) -> str:
        """Return the Python type of a resolved schema's values, as code."""
        name = kind(node)
        if name == "union":
            types = dict.fromkeys(self.type_of(branch) for branch in node)
            return " | ".join(sorted(types, key=lambda text: text == "None"))
        if name == "array":
            return f"list[{self.type_of(node['items'])}]"
        if name == "map":
            return f"dict[str, {self.type_of(node['values'])}]"
        if isinstance(node, dict) and (name, node.get("logicalType")) in LOGICAL:
            return LOGICAL[name, node["logicalType"]]
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        if name not in {"record", "enum"}:
            raise SystemExit(f"{name} contains itself: recursive records are refused")
        return self._define(node)

    def _define(self, node: dict[str, Any]) -> str:
        name = str(node["name"]).rpartition(".")[2]
        origin = minified(node)
        if self.origins.setdefault(name, origin) != origin:
            raise SystemExit(f"two different types have the name {name}")
        if name not in self.definitions:
            code = self._enum(name, node) if kind(node) == "enum" else self._record(name, node)
            self.definitions[name] = code
        return name

    def _enum(self, name: str, node: dict[str, Any]) -> str:
        symbols = ", ".join(f'"{symbol}"' for symbol in node["symbols"])
        return f"{name} = Literal[{symbols}]\n"

    def _record(self, name: str, node: dict[str, Any]) -> str:
        types = {entry["name"]: self.type_of(entry["type"]) for entry in node["fields"]}
        if any(iskeyword(key) or key.startswith("__") for key in types):
            items = ", ".join(f"{json.dumps(key)}: {text}" for key, text in types.items())
            return f'{name} = TypedDict("{name}", {{{items}}})\n'
        lines = [f"class {name}(TypedDict):", f"    {_docstring(node)}", ""]
        for entry in node["fields"]:
            lines.append(f"    {entry['name']}: {types[entry['name']]}")
            lines += [f"    {_docstring(entry)}"] if entry.get("doc") else []
        return "\n".join(lines) + "\n"


def _docstring(node: dict[str, Any]) -> str:
    text = (
        " ".join(str(node.get("doc", f"Record {node['name']}.")).split())
        .replace("\\", "\\\\")
        .replace('"', "'")
    )
    return f'"""{text}"""'


def constant_name(record: str) -> str:
    """Return the name of a record's constant: USER_CLICK for UserClick."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", record).upper()


def generate(contracts: list[Contract]) -> str:
    """Return the code of the module."""
    module = Module()
    constants = []
    for contract in contracts:
        row = module.type_of(resolve(contract.schema))
        canonical = to_parsing_canonical_form(parse_schema(contract.schema))
        number = int.from_bytes(bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")), "little")
        name = json.loads(canonical)["name"]
        lines = [
            f"{constant_name(row)}: RecordSchema[{row}] = RecordSchema(",
            f"    row={row},",
            f"    name={name!r},",
            f"    schema={minified(contract.schema)!r},",
            f"    fingerprint=0x{number:016x},",
            "    history=(",
            *(f"        {minified(version)!r}," for version in contract.history),
            "    ),",
            ")",
        ]
        constants.append("\n".join(lines) + "\n")
    body = "\n\n".join((*module.definitions.values(), *constants))
    modules = [f"import {name}" for name in ("datetime", "decimal", "uuid") if f"{name}." in body]
    words = [word for word in ("Literal", "TypedDict") if re.search(rf"\b{word}\b", body)]
    imports = "\n".join(
        (*modules, f"from typing import {', '.join(words)}", "", "from contracts.schema import RecordSchema")
    )
    return f"{HEADER}\n{imports}\n\n\n{body}"


# ---- commands -----------------------------------------------------------------------------------------------------


def check(folder: Path, target: Path) -> list[str]:
    """Return the problems to solve before a commit."""
    contracts = read_contracts(folder)
    problems = [text for contract in contracts for text in problems_of(contract)]
    if not target.exists() or target.read_text("utf-8") != generate(contracts):
        problems.append(f"{target.name} is not current: python libs/contracts/generate.py")
    return problems


def release(folder: Path, stem: str) -> Path:
    """Store the present schema as the next released version. Refuses a schema that cannot read the earlier versions."""
    found = [contract for contract in read_contracts(folder) if contract.stem == stem]
    if not found:
        raise SystemExit(f"there is no {stem}.avsc in {folder}")
    present = resolve(found[0].schema)
    problems = [text for version in found[0].history for text in violations(resolve(version), present)]
    if problems:
        raise SystemExit("\n".join(dict.fromkeys(problems)))
    if found[0].history and minified(found[0].history[-1]) == minified(found[0].schema):
        raise SystemExit(f"{stem}.avsc is released already, as version {len(found[0].history)}")
    path = folder / "history" / stem / f"{len(found[0].history) + 1}.avsc"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((folder / f"{stem}.avsc").read_bytes())
    return path


def main(arguments: list[str]) -> None:
    """Run one of the commands above."""
    parser = ArgumentParser(description="Generate contracts.records from proto/avro.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail if something is not current"
    )
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("release", help="release a schema as the next version").add_argument("name")
    options = parser.parse_args(arguments)
    if options.check:
        problems = check(AVRO, TARGET)
        if problems:
            raise SystemExit("\n".join(problems))
        return
    if options.command == "release":
        release(AVRO, options.name)
    contracts = read_contracts(AVRO)
    TARGET.write_text(generate(contracts), "utf-8")
    for text in (text for contract in contracts for text in problems_of(contract)):
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

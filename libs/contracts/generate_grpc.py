"""Generate the typed gRPC modules in `contracts.grpc` from `proto/<scenario>/v<n>/*.proto`, and detect breaking changes.

    python libs/contracts/generate_grpc.py                          write the modules
    python libs/contracts/generate_grpc.py --check                  fail on a change that breaks callers
    python libs/contracts/generate_grpc.py release click_count/v1   store the present files as the next release

A test compares the modules with what is committed, and runs the check. A release is in
`proto/history/<scenario>/v<n>/<number>/` and never changes: callers that were built with it are in use. A breaking
change belongs in a new v<n+1>. protoc derives the import path of a generated module from the path of the .proto
file, so the files are compiled from a copy laid out as the package is.
"""

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
PACKAGE = Path("contracts", "grpc")
TARGET = Path(__file__).parent / "src" / PACKAGE


def generate(target: Path) -> None:
    """Write the modules of all .proto files below the folder `target`, which stands for `contracts.grpc`."""
    with tempfile.TemporaryDirectory() as folder:
        sources, output = Path(folder, "in"), Path(folder, "out")
        output.mkdir()
        for proto in sorted(PROTO.glob("*/v*/*.proto")):
            place = sources / PACKAGE / proto.relative_to(PROTO)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(proto, place)
        names = [str(path.relative_to(sources)) for path in sorted(sources.rglob("*.proto"))]
        _compile(sources, output, names)
        for folder_made in {path.parent for path in output.rglob("*_pb2.py")}:
            while folder_made != output / PACKAGE.parent:
                (folder_made / "__init__.py").touch()
                folder_made = folder_made.parent  # noqa: PLW2901 the loop walks up to the package
        shutil.copytree(output / PACKAGE, target, dirs_exist_ok=True)


def _compile(sources: Path, output: Path, names: list[str]) -> None:
    # protoc looks for its plug-ins (mypy-protobuf) on PATH; in a virtual environment they lie beside the interpreter.
    beside = Path(sys.executable).parent
    _protoc(
        sources,
        f"--plugin=protoc-gen-mypy={beside / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={beside / 'protoc-gen-mypy_grpc'}",
        f"--python_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_out=quiet:{output}",
        f"--mypy_grpc_out=quiet,only_sync:{output}",
        *names,
    )


def _protoc(sources: Path, *arguments: str) -> None:
    bundled = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"--proto_path={sources}", f"--proto_path={bundled}", *arguments])
    if code != 0:
        raise SystemExit(code)


# ---- breaking changes ---------------------------------------------------------------------------------------------

TYPES = FieldDescriptorProto.Type.Name
REPEATED = FieldDescriptorProto.LABEL_REPEATED
REQUIRED = FieldDescriptorProto.LABEL_REQUIRED
SAME_ON_THE_WIRE_AND_IN_JSON = (
    {"TYPE_INT32", "TYPE_UINT32"},
    {"TYPE_INT64", "TYPE_UINT64"},
    {"TYPE_FIXED32", "TYPE_SFIXED32"},
    {"TYPE_FIXED64", "TYPE_SFIXED64"},
)


def breaking(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """Return the changes of `new` that break a caller built with `old`: in binary, in JSON or in its stubs.

    The rules are those of `buf breaking` with WIRE_JSON, plus one: no message, enum, service or method may be removed.
    """
    problems: list[str] = []
    messages, enums = dict(_messages(new)), dict(_enums(new))
    for name, message in _messages(old):
        problems += (
            _message(name, message, messages[name])
            if name in messages
            else [f"{name}: the message was removed"]
        )
    for name, enum in _enums(old):
        problems += _enum(name, enum, enums[name]) if name in enums else [f"{name}: the enum was removed"]
    return problems + _services(old, new)


def _messages(files: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    def within(prefix: str, found: Any) -> Iterator[tuple[str, DescriptorProto]]:
        for message in found:
            name = f"{prefix}.{message.name}"
            yield name, message
            yield from within(name, message.nested_type)

    for file in files.file:
        yield from within(file.package, file.message_type)


def _enums(files: FileDescriptorSet) -> Iterator[tuple[str, EnumDescriptorProto]]:
    for file in files.file:
        yield from ((f"{file.package}.{enum.name}", enum) for enum in file.enum_type)
    for name, message in _messages(files):
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)


def _message(place: str, old: DescriptorProto, new: DescriptorProto) -> list[str]:
    fields = {field.number: field for field in new.field}
    problems = _unreserved(place, old, new)
    for field in old.field:
        if field.number in fields:
            problems += _field(f"{place}.{field.name}", field, fields[field.number], old, new)
        else:
            problems += _removed(f"{place}.{field.name}", "field", field, new)
    known = {field.number for field in old.field}
    problems += [
        f"{place}.{field.name}: a new field must not be required, older callers do not send it"
        for field in new.field
        if field.label == REQUIRED and field.number not in known
    ]
    return problems


def _field(
    place: str,
    old: FieldDescriptorProto,
    new: FieldDescriptorProto,
    old_in: DescriptorProto,
    new_in: DescriptorProto,
) -> list[str]:
    problems = []
    if old.name != new.name or old.json_name != new.json_name:
        problems.append(f"{place}: the name of field {old.number} changed to {new.name}, JSON is by name")
    types = {TYPES(old.type), TYPES(new.type)}
    if len(types) > 1 and not any(types <= alike for alike in SAME_ON_THE_WIRE_AND_IN_JSON):
        problems.append(f"{place}: the type changed from {_type(old)} to {_type(new)}")
    elif old.type_name != new.type_name:
        problems.append(f"{place}: the type changed from {old.type_name} to {new.type_name}")
    if (old.label == REPEATED) != (new.label == REPEATED):
        was, now = ("repeated" if field.label == REPEATED else "single" for field in (old, new))
        problems.append(f"{place}: it was {was} and is {now}")
    if (old.label == REQUIRED) != (new.label == REQUIRED):
        problems.append(f"{place}: required cannot be added or removed")
    if _oneof(old, old_in) != _oneof(new, new_in):
        problems.append(f"{place}: it was moved into, out of or to another oneof")
    return problems


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or TYPES(field.type).removeprefix("TYPE_").lower()


def _oneof(field: FieldDescriptorProto, message: DescriptorProto) -> str | None:
    # A field with "optional" is alone in a oneof that the compiler makes up.
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return message.oneof_decl[field.oneof_index].name


def _enum(place: str, old: EnumDescriptorProto, new: EnumDescriptorProto) -> list[str]:
    names: dict[int, set[str]] = {}
    for value in new.value:
        names.setdefault(value.number, set()).add(value.name)
    problems = _unreserved(place, old, new)
    for value in old.value:
        if value.number not in names:
            problems += _removed(f"{place}.{value.name}", "value", value, new)
        elif value.name not in names[value.number]:
            now = ", ".join(sorted(names[value.number]))
            problems.append(f"{place}.{value.name}: the name of value {value.number} changed to {now}")
    return problems


def _numbers(described: Any) -> set[int]:
    last = 0 if isinstance(described, EnumDescriptorProto) else 1  # a message's ranges end before their end
    ranges = ((span.start, min(span.end - last, span.start + 10_000)) for span in described.reserved_range)
    return {number for start, end in ranges for number in range(start, end + 1)}


def _removed(place: str, kind: str, item: Any, new: Any) -> list[str]:
    if item.number in _numbers(new) and item.name in new.reserved_name:
        return []
    return [f'{place}: the {kind} was removed without "reserved {item.number}; reserved \\"{item.name}\\";"']


def _unreserved(place: str, old: Any, new: Any) -> list[str]:
    numbers = sorted(_numbers(old) - _numbers(new))
    names = sorted(set(old.reserved_name) - set(new.reserved_name))
    gone = ", ".join([*map(str, numbers), *names])
    return [f"{place}: {gone} must stay reserved, older callers may send it"] if gone else []


def _services(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    def methods(files: FileDescriptorSet) -> dict[str, dict[str, MethodDescriptorProto]]:
        return {
            f"{file.package}.{service.name}": {method.name: method for method in service.method}
            for file in files.file
            for service in file.service
        }

    problems = []
    present = methods(new)
    for service, calls in methods(old).items():
        if service not in present:
            problems.append(f"{service}: the service was removed")
            continue
        for name, was in calls.items():
            now = present[service].get(name)
            if now is None:
                problems.append(f"{service}.{name}: the method was removed")
                continue
            for what in ("input_type", "output_type", "client_streaming", "server_streaming"):
                before, after = getattr(was, what), getattr(now, what)
                if before != after:
                    words = what.replace("_", " ")
                    problems.append(f"{service}.{name}: its {words} changed from {before} to {after}")
    return problems


# ---- releases -----------------------------------------------------------------------------------------------------


def described(files: list[Path], package: Path) -> FileDescriptorSet:
    """Return protoc's descriptors of one version of one scenario; `package` is such as "click_count/v1"."""
    with tempfile.TemporaryDirectory() as folder:
        sources, output = Path(folder, "in"), Path(folder, "out")
        place = sources / PACKAGE / package
        place.mkdir(parents=True)
        names = [str(Path(shutil.copyfile(file, place / file.name)).relative_to(sources)) for file in files]
        _protoc(sources, f"--descriptor_set_out={output}", *names)
        return FileDescriptorSet.FromString(output.read_bytes())


def releases(proto: Path, package: Path) -> list[Path]:
    """Return the folders of a version's releases, oldest first. A gap in their numbers is an error."""
    found = {int(path.name): path for path in (proto / "history" / package).glob("*")}
    if sorted(found) != list(range(1, len(found) + 1)):
        raise SystemExit(f"history of {package}: releases {sorted(found)}, must be 1, 2, 3 without gaps")
    return [found[number] for number in sorted(found)]


def check(proto: Path) -> list[str]:
    """Return the problems to solve before a commit: breaking changes, and versions without a release."""
    problems = []
    present = {path.relative_to(proto) for path in proto.glob("*/v*") if path.is_dir()}
    released = {path.parent.relative_to(proto / "history") for path in (proto / "history").glob("*/v*/1")}
    for package in sorted(present | released):
        history = releases(proto, package)
        if package not in present:
            problems.append(f"{package}: it was released and is gone")
        elif not history:
            problems.append(f"{package}: python libs/contracts/generate_grpc.py release {package}")
        else:
            new = described(sorted((proto / package).glob("*.proto")), package)
            old = described(sorted(history[-1].glob("*.proto")), package)
            problems += breaking(old, new)
    return problems


def release(proto: Path, package: Path) -> Path:
    """Store the present files of a version as its next release. Refuses a change that breaks callers of the last one."""
    files = sorted((proto / package).glob("*.proto"))
    if not files:
        raise SystemExit(f"there are no .proto files in {proto / package}")
    history = releases(proto, package)
    if history:
        before = sorted(history[-1].glob("*.proto"))
        if {file.name: file.read_bytes() for file in before} == {
            file.name: file.read_bytes() for file in files
        }:
            raise SystemExit(f"{package} is released already, as {len(history)}")
        problems = breaking(described(before, package), described(files, package))
        if problems:
            raise SystemExit("\n".join(problems))
    target = proto / "history" / package / str(len(history) + 1)
    target.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, target / file.name)
    return target


def main(arguments: list[str]) -> None:
    """Run one of the commands above."""
    parser = ArgumentParser(description="Generate contracts.grpc from proto/.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a breaking change")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("release", help="keep the present files as the next release").add_argument(
        "package", type=Path
    )
    options = parser.parse_args(arguments)
    if options.command == "release":
        release(PROTO, options.package)
    elif not options.check:
        generate(TARGET)
    problems = check(PROTO)
    if problems and options.check:
        raise SystemExit("\n".join(problems))
    for text in problems:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

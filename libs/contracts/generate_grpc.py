"""Generate the typed gRPC modules in `contracts.grpc` from `proto/<scenario>/v<n>/*.proto`.

Run it after a change of a .proto file: `python libs/contracts/generate_grpc.py`. A test compares its output with
what is committed. protoc derives the import path of a generated module from the path of the .proto file, so the
files are compiled from a copy laid out as the package is.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
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
                folder_made = folder_made.parent  # noqa: PLW2901 the walk up to the package is the loop
        shutil.copytree(output / PACKAGE, target, dirs_exist_ok=True)


def _compile(sources: Path, output: Path, names: list[str]) -> None:
    # protoc looks for its plug-ins (mypy-protobuf) on PATH; in a virtual environment they lie beside the interpreter.
    beside = Path(sys.executable).parent
    bundled = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"--plugin=protoc-gen-mypy={beside / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={beside / 'protoc-gen-mypy_grpc'}",
            f"--proto_path={sources}",
            f"--proto_path={bundled}",
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"--mypy_out=quiet:{output}",
            f"--mypy_grpc_out=quiet,only_sync:{output}",
            *names,
        ]
    )
    if code != 0:
        raise SystemExit(code)


if __name__ == "__main__":
    generate(TARGET)

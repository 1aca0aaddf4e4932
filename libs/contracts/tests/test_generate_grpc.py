from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

CONTRACTS = Path(__file__).resolve().parents[1]
COMMITTED = CONTRACTS / "src" / "contracts" / "grpc"


def load_generator() -> ModuleType:
    spec = spec_from_file_location("generate_grpc", CONTRACTS / "generate_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modules_of(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*.py*") if path.suffix in {".py", ".pyi"}]
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in files}


def test_the_committed_grpc_modules_are_what_the_proto_files_generate(tmp_path: Path) -> None:
    load_generator().generate(tmp_path)
    assert modules_of(tmp_path) == modules_of(COMMITTED)

"""The cost of a further scenario: in a copy of the repository one is added, as CONTRIBUTING.md says, and the files are counted."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = (
    "services", "infra", "proto", "libs", "spark", "docs", "tests", "conftest.py", "pyproject.toml", "docker-compose.yml",
    "requirements.lock", "Makefile",
)  # fmt: skip
SOURCE: Final = "user_status"
# In this order: what the copied scenario is called, and what the new one is.
RENAMED: Final = (
    ("user_status", "example"), ("user-status", "example"), ("UserStatus", "Example"), ("USER_STATUS", "EXAMPLE"),
    ("STACK_STATUS", "STACK_EXAMPLE"), ("streamtable.status", "streamtable.example"),
)  # fmt: skip
# The copy keeps out of the default profile, which is to fit into 3 GB, and has ports of its own.
PORTS: Final = {"8091": "8191", "8092": "8192", "50052": "50152"}

Snapshot = Mapping[str, str]
"""The digest of each file by its path."""


def renamed(text: str) -> str:
    for old, new in RENAMED:
        text = text.replace(old, new)
    return text


def copy_renamed(source: Path, target: Path) -> None:
    """Copy a file, or all files of a folder, with the new scenario's name in their texts and names."""
    for file in [source] if source.is_file() else sorted(source.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            to = target / renamed(file.relative_to(source).as_posix()) if source.is_dir() else target
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(renamed(file.read_text()))


def files_of(root: Path) -> Snapshot:
    return {
        file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in root.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def run(root: Path, *command: str) -> str:
    """Run a program of the copy with the copy's packages."""
    sources = [*root.glob("libs/*/src"), *root.glob("services/*/src"), root / "spark/src"]
    # Pytest within pytest: its variables are for the outer one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env={**clean, "PYTHONPATH": os.pathsep.join(map(str, sources)), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


def touched(before: Snapshot, root: Path, under: Sequence[str]) -> set[str]:
    """The files that are new, changed or gone; those in `under` are not counted."""
    now = files_of(root)
    changed = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
    return {path for path in changed if not path.startswith(tuple(under))}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, without build output and installed packages."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "build")
            )
        else:
            shutil.copyfile(ROOT / name, root / name)
    return root


@pytest.mark.timeout(300)  # it starts Python five times
def test_a_scenario_is_one_folder_and_its_contracts_and_make_gen_changes_at_most_twelve_other_files(
    copy: Path,
) -> None:
    """A scenario `example` is added with schemas, a gRPC service and REST of its own, and passes the static checks.

    Three kinds of files come about outside of services/example, and are named here:
    - contracts, by hand: its Avro schemas and its .proto file, one file each in proto/;
    - generated from these and from its code: records and gRPC stubs in libs/contracts, OpenAPI in proto/openapi;
    - generated from its manifest by `make gen`. Only these name the scenario for others, and are counted: at most twelve.
    No other file is touched. Pages about it, and its rows in the pages of reference, are written by hand as it needs them.
    """
    before = files_of(copy)
    copy_renamed(copy / "services" / SOURCE, copy / "services/example")
    manifest = copy / "services/example/scenario.toml"
    text = manifest.read_text().replace('lock = "services"', 'lock = "services"\nprofile = "example"')
    for old, new in PORTS.items():
        text = text.replace(f"port = {old}", f"port = {new}")
    manifest.write_text(text)
    for schema in copy.glob(f"proto/avro/{SOURCE}*.avsc"):
        copy_renamed(schema, schema.with_name(renamed(schema.name)))
    copy_renamed(copy / f"proto/{SOURCE}", copy / "proto/example")
    by_hand = {
        "proto/avro/example.avsc",
        "proto/avro/example_change.avsc",
        "proto/avro/example_update.avsc",
        "proto/example/v1/example.proto",
    }
    assert touched(before, copy, ["services/example/"]) == by_hand

    run(copy, "libs/contracts/generate.py")
    run(copy, "libs/contracts/generate_grpc.py")
    run(copy, "services/example/generate_openapi.py")
    stubs = ["libs/contracts/src/contracts/grpc/example/", "libs/contracts/src/contracts/records.py"]
    openapi = ["proto/openapi/example-emitter.json", "proto/openapi/example-query.json"]
    assert touched(before, copy, ["services/example/", *stubs, *openapi]) == by_hand

    run(copy, "-m", "infra.scenarios.generate")
    generated = touched(before, copy, ["services/example/", *stubs, *openapi, *by_hand])
    assert generated == {
        "docker-compose.yml",
        "docs/how-to/run-the-stack.md",
        "infra/kubernetes/base/scenarios/example/kustomization.yaml",
        "infra/kubernetes/base/scenarios/kustomization.yaml",
        "infra/kubernetes/base/topics.yaml",
        "infra/kubernetes/components/autoscaling/autoscaling.yaml",
        "infra/kubernetes/overlays/production/kustomization.yaml",
        "infra/kubernetes/overlays/small/topics.yaml",
        "infra/prometheus/prometheus.yml",
        "infra/secure/compose.yml",
        "infra/topics.yaml",
        "pyproject.toml",
    }
    assert len(generated) <= 12

    checks = [f"tests/stack/test_{name}.py" for name in ("compose", "images", "kubernetes", "scenarios")]
    checks += ["tests/system/test_declared_groups.py", "services/example/tests/test_topics.py"]
    # Slow, and the same for every scenario: the schemas of each manifest, and the rest of the larger overlay.
    quick = "not production and not test_a_manifest_is_valid and not test_the_secrets_of_all_pods"
    said = run(copy, "-m", "pytest", "-q", "-p", "no:schemathesis", "-k", quick, *checks)
    assert " passed" in said
    assert "failed" not in said

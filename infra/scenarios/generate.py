"""`python -m infra.scenarios.generate`: writes the files that name the scenarios outside of their folders, from their manifests.

With --check it writes nothing, and fails if a file is out of date.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml
from infra.scenarios.compose import compose_file, ports_page, prometheus_file, secure_file
from infra.scenarios.kubernetes import (
    application_files,
    autoscaling_file,
    component_file,
    images_file,
    network_file,
)
from infra.scenarios.manifest import ManifestInvalidError, load_all
from infra.scenarios.text import MarkMissingError
from infra.scenarios.topics import kubernetes_file, topics_file
from infra.scenarios.workspace import workspace_file

ROOT: Final = Path(__file__).resolve().parents[2]
APPLICATIONS: Final = "infra/kubernetes/base/scenarios"
"""The folder of the applications' kustomizations: all in it is generated."""


def generated(root: Path) -> Mapping[str, str]:
    """Return the text of each generated file of a checkout, by its path from the root.

    Raises:
        ManifestInvalidError: A manifest is invalid.
        MarkMissingError: A file with a generated region lacks its marks.
    """
    scenarios = load_all(root)

    def now(path: str) -> str:
        return (root / path).read_text()

    topics = topics_file(now("infra/topics.yaml"), scenarios)
    base = kubernetes_file(topics, scenarios, partitions=12, replication=3, why="with three replicas")
    small = kubernetes_file(topics, scenarios, partitions=4, replication=1, why="with fewer partitions")
    files = {
        "infra/topics.yaml": topics,
        "infra/kubernetes/base/topics.yaml": base,
        "infra/kubernetes/overlays/small/topics.yaml": small,
        f"{APPLICATIONS}/kustomization.yaml": component_file(scenarios, yaml.safe_load(base)["users"]),
    }
    for name, text in application_files(scenarios).items():
        files[f"{APPLICATIONS}/{name}/kustomization.yaml"] = text
    path = "infra/secure/compose.yml"
    files[path] = secure_file(now(path), scenarios, yaml.safe_load(topics)["users"])
    for path, render in (
        ("pyproject.toml", workspace_file),
        ("docker-compose.yml", compose_file),
        ("docs/how-to/run-the-stack.md", ports_page),
        ("infra/prometheus/prometheus.yml", prometheus_file),
        ("infra/kubernetes/components/autoscaling/autoscaling.yaml", autoscaling_file),
        ("infra/kubernetes/components/network/policies.yaml", network_file),
        ("infra/kubernetes/overlays/production/kustomization.yaml", images_file),
    ):
        files[path] = render(now(path), scenarios)
    return files


def outdated(root: Path) -> Mapping[str, str | None]:
    """Return the current text of each file that has another one, or none; None for a file that is to go."""
    files = generated(root)
    changed: dict[str, str | None] = {
        path: text
        for path, text in files.items()
        if not (root / path).exists() or (root / path).read_text() != text
    }
    for there in sorted((root / APPLICATIONS).rglob("*.yaml")):
        if (path := there.relative_to(root).as_posix()) not in files:
            changed[path] = None
    return changed


def write(root: Path, changed: Mapping[str, str | None]) -> None:
    """Write these files; remove the ones that are to go."""
    for path, text in changed.items():
        file = root / path
        if text is None:
            file.unlink()
            if not any(file.parent.iterdir()):
                file.parent.rmdir()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def main() -> int:
    """Write the files that are out of date, or name them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is out of date")
    check = parser.parse_args().check
    try:
        changed = outdated(ROOT)
    except (ManifestInvalidError, MarkMissingError) as error:
        print(f"[scenarios] {error}", file=sys.stderr)
        return 1
    if not check:
        write(ROOT, changed)
    for path in changed:
        print(f"[scenarios] {path} {'is out of date: run make gen' if check else 'written'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

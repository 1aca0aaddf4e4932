"""Run by `jars` with jgo on the path: download jars, given by their paths in a Maven repository, into a folder."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jgo.maven import MavenContext

TIMEOUT_S = 60
AT_ONCE = 4


def main(repository: str, *paths: str) -> None:
    """Download the files that are not in the folder yet."""
    context = MavenContext(repo_cache=Path(repository), timeout=TIMEOUT_S)

    def fetch(path: str) -> None:
        *group, artifact, version, name = path.split("/")
        classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
        context.project(".".join(group), artifact).at_version(version).artifact(
            classifier=classifier
        ).resolve()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(fetch, paths))


if __name__ == "__main__":
    main(*sys.argv[1:])

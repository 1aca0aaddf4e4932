"""Jars, mainly Kafka's, fetched once per machine with Maven or else jgo, and compared with pinned SHA-256 digests.

The pins are in files such as `pins/kafka-<version>.sha256`, which `sha256sum -c` can read. Their paths follow the
layout of a Maven repository, as both clients do.
"""

import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from localkafka.cache import PINS, cache_folder, cached, install_wheels, run
from localkafka.errors import SetupError
from localkafka.java import find_java, system_java

KAFKA_VERSION = "4.3.1"
KAFKA_3_VERSION = "3.9.2"
"""The last release before 4.0. Its jars (49 MB) are fetched by the first test that starts such a broker."""
_LOGGING = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
# The broker; its command-line tools, which the storage tool of 4.x needs; and the logging backend.
ROOTS = {
    KAFKA_VERSION: (
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        _LOGGING,
    ),
    KAFKA_3_VERSION: (("org.apache.kafka", "kafka_2.13", KAFKA_3_VERSION), _LOGGING),
}
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
JGO = "jgo-3.2.0"

log = logging.getLogger(__name__)


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Return the folder that holds all jars of the broker and its tools, and nothing else.

    Raises:
        SetupError: They cannot be fetched, or do not match the pins; or this version has no pins.
    """
    if version not in ROOTS:
        raise SetupError(f"Kafka {version} has no pins: expected one of {', '.join(ROOTS)}")
    return maven_jars(f"kafka-{version}", ROOTS[version], (PINS / f"kafka-{version}.sha256").read_text())


def maven_jars(name: str, roots: Sequence[tuple[str, str, str]] | Path, pinned: str) -> Path:
    """Return a folder of the cache that holds the pinned jars, and nothing else.

    Args:
        name: The name of the folder, with the version.
        roots: Group, artifact and version of the artifacts that Maven resolves with their dependencies. Or a pom.xml
            with these dependencies.
        pinned: The output of `sha256sum` for all of them, with their paths in a Maven repository.

    Raises:
        SetupError: They cannot be fetched, or do not match the pins.
    """
    return cached(name, lambda target: _build(name, roots, read_pins(pinned), target))


def class_archive(java: Path, version: str = KAFKA_VERSION) -> Path:
    """Return the path of the broker's class archive for this Java; `localkafka.classes` makes `KAFKA_VERSION`'s."""
    program = java.resolve()
    of_java = hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return cache_folder() / f"kafka-{version}-classes-{of_java}" / "kafka.jsa"


def _build(
    name: str, roots: Sequence[tuple[str, str, str]] | Path, pins: Mapping[str, str], target: Path
) -> None:
    repository = target.with_name("repository")
    # The wheel's Java does not trust certificates that were added to the machine, so Maven runs on the machine's Java.
    java = system_java()
    if java and shutil.which("mvn"):
        log.info("Fetching %s (%d jars) with Maven", name, len(pins))
        _fetch_with_maven(repository, java, roots)
    else:
        log.info("Fetching %s (%d jars) with jgo, as Maven or Java is not installed", name, len(pins))
        _fetch_with_jgo(repository, pins)
    verify(repository, pins, name)
    for path in pins:
        (repository / path).rename(target / Path(path).name)


def read_pins(text: str) -> dict[str, str]:
    """Parse the output of sha256sum into path in a Maven repository -> SHA-256."""
    lines = (line.split(maxsplit=1) for line in text.splitlines())
    return {path: digest for digest, path in lines}


def verify(repository: Path, pins: Mapping[str, str], name: str) -> None:
    """Compare a folder with the pins. Raises `SetupError` that names missing, additional or different files."""
    found = {
        path.relative_to(repository).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in repository.rglob("*.jar")
    }
    wrong = sorted(path for path in {*found, *pins} if found.get(path) != pins.get(path))
    if wrong:
        raise SetupError(
            f"{len(wrong)} jars are not as pinned in {name}.sha256, {', '.join(wrong[:3])} among them: "
            "check the repository that Maven uses, or renew the pins if the version was changed on purpose"
        )


def maven_pom(roots: Sequence[tuple[str, str, str]]) -> str:
    """Return the pom.xml of a project that depends on the roots and builds nothing."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in roots
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>streamtable</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _fetch_with_maven(repository: Path, java: Path, roots: Sequence[tuple[str, str, str]] | Path) -> None:
    repository.mkdir()
    pom = repository / "pom.xml"
    pom.write_text(roots.read_text() if isinstance(roots, Path) else maven_pom(roots))
    options = ["-DincludeScope=runtime", "-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={repository}"]
    env = os.environ | {"JAVA_HOME": str(java.resolve().parent.parent)}
    run(["mvn", "--batch-mode", "--quiet", "--file", str(pom), COPY_GOAL, *options], env=env)


def _fetch_with_jgo(repository: Path, pins: Mapping[str, str]) -> None:
    # In its own folder and process, to keep its dependencies apart from ours.
    packages = cached(JGO, lambda target: install_wheels("jgo.txt", target))
    run(
        [sys.executable, str(Path(__file__).with_name("jgo_fetch.py")), str(repository), *pins],
        env=os.environ | {"PYTHONPATH": str(packages)},
    )


def main() -> None:
    """Fetch Java, if the machine has none, and the jars; print their paths."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        print(find_java(), kafka_jars(), sep="\n")  # noqa: T201 - the output of this command
    except SetupError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

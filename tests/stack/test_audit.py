"""The audit of the lock: it names what is vulnerable, and stops nothing."""

import json
import sys

import pytest
from infra import audit

REPORT = {
    "dependencies": [
        {"name": "sound", "version": "1.0", "vulns": []},
        {
            "name": "leaky",
            "version": "2.0",
            "vulns": [
                {"id": "CVE-1", "fix_versions": ["2.1", "3.0"], "aliases": []},
                {"id": "CVE-2", "fix_versions": [], "aliases": []},
            ],
        },
        {"name": "own", "skip_reason": "not found"},
    ]
}


def saying(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})"]


def test_vulnerable_packages_are_named_with_the_versions_that_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert audit.main(saying(json.dumps(REPORT), code=1)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "audit: WARNING: leaky 2.0: CVE-1 (fixed in 2.1, 3.0); CVE-2 (fixed in no version yet)",
        "audit: 1 of 2 packages have known vulnerabilities",
        "audit: 1 packages are not known to the service: own ...",
    ]


@pytest.mark.parametrize(
    "command",
    [
        saying("no index", code=2),
        saying("{}"),
        saying('{"dependencies": [7]}'),
        ["/no/such/program"],
        [sys.executable, "-c", "import time; time.sleep(600)"],
    ],
)
def test_without_an_answer_it_says_so_and_does_not_fail(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(command, seconds=5) == 0
    assert "nothing is known about the packages of the lock" in capsys.readouterr().out

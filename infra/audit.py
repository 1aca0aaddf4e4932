"""`make audit`: warns about packages of the lock with known vulnerabilities.

It queries the vulnerability service of pip-audit, which uv fetches through the index of this machine. If the tool or the
service cannot be reached it prints that. It never fails: vulnerabilities are published independently of changes, and must
not block unrelated ones.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / "requirements.lock"
SECONDS: Final = 90.0
COMMAND: Final = (
    *(sys.executable, "-m", "uv", "tool", "run", "--quiet", "pip-audit==2.10.1"),
    *("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--requirement"),
)


def main(command: Sequence[str] = (*COMMAND, str(LOCK)), seconds: float = SECONDS) -> int:
    """Print the known vulnerabilities, and return 0."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )
        lines = report(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        lines = [f"nothing is known about the packages of the lock: no answer within {seconds:g} s"]
    except (OSError, ValueError):
        lines = [
            "nothing is known about the packages of the lock: pip-audit cannot be had, or gets no answer"
        ]
    for line in lines:
        print(f"audit: {line}")
    return 0


def report(document: Mapping[str, Any]) -> list[str]:
    """Return the findings of pip-audit, a line for each package.

    Raises:
        ValueError: This is not its report.
    """
    try:
        packages = document["dependencies"]
        vulnerable = [each for each in packages if each.get("vulns")]
        skipped = [each["name"] for each in packages if "skip_reason" in each]
        lines = [f"WARNING: {_found(each)}" for each in vulnerable]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a report of pip-audit") from error
    judged = len(packages) - len(skipped)
    lines.append(f"{len(vulnerable)} of {judged} packages have known vulnerabilities")
    if skipped:
        lines.append(
            f"{len(skipped)} packages are not known to the service: {', '.join(sorted(skipped)[:5])} ..."
        )
    return lines


def _found(package: Mapping[str, Any]) -> str:
    known = []
    for each in package["vulns"]:
        fixed = ", ".join(each["fix_versions"]) or "no version yet"
        known.append(f"{each['id']} (fixed in {fixed})")
    return f"{package['name']} {package['version']}: {'; '.join(known)}"


if __name__ == "__main__":
    sys.exit(main())

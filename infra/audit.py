"""`make audit`: names the packages of the lock with known vulnerabilities, and fails if one of these is critical.

pip-audit, whose packages are pinned in infra/pip_audit.txt, asks the vulnerability service of the package index. It names no
severities: they come from the advisories (GHSA) in the database OSV. All but a critical vulnerability is a warning only,
because vulnerabilities are published independently of changes. So is one whose severity cannot be found, and a tool or a
service that cannot be reached.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from localkafka.cache import cached, install_wheels
from localkafka.errors import SetupError

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / "requirements.lock"
PINS: Final = ROOT / "infra" / "pip_audit.txt"
SECONDS: Final = 60.0
OPTIONS: Final = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")
ADVISORIES: Final = "https://api.osv.dev/v1/vulns/"
ADVISORY_SECONDS: Final = 10.0
CRITICAL: Final = "CRITICAL"


def main(command: Sequence[str] | None = None, seconds: float = SECONDS, advisories: str = ADVISORIES) -> int:
    """Print the known vulnerabilities. Returns 1 if one of them is critical, else 0."""
    critical = False
    try:
        done = subprocess.run(
            command or pip_audit(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        document = json.loads(done.stdout)
        severities = severities_of(advisories_in(document), partial(advisory, advisories))
        lines, critical = judge(document, severities)
    except subprocess.TimeoutExpired:
        lines = [f"nothing is known about the packages of the lock: no answer within {seconds:g} s"]
    except (OSError, SetupError, ValueError):
        lines = [
            "nothing is known about the packages of the lock: pip-audit cannot be had, or gets no answer"
        ]
    for line in lines:
        print(f"audit: {line}")
    return int(critical)


def pip_audit() -> list[str]:
    """Return the command that audits the lock; the tool is fetched once for this machine."""
    version = PINS.read_text().partition("pip-audit==")[2].split()[0]
    tool = cached(f"pip-audit-{version}", partial(install_wheels, PINS))
    return [
        "env",
        f"PYTHONPATH={tool}",
        sys.executable,
        "-m",
        "pip_audit",
        *OPTIONS,
        "--requirement",
        str(LOCK),
    ]


def advisories_in(document: Mapping[str, Any]) -> list[str]:
    """Return the advisories that pip-audit's report names.

    Raises:
        ValueError: This is not its report.
    """
    try:
        found = [each for package in document["dependencies"] for each in package.get("vulns", ())]
        return sorted({name for each in found for name in names_of(each) if name.startswith("GHSA-")})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a report of pip-audit") from error


def names_of(vulnerability: Mapping[str, Any]) -> list[str]:
    """Return all names of a vulnerability."""
    return [vulnerability["id"], *vulnerability["aliases"]]


def severities_of(names: Sequence[str], ask: Callable[[str], Any]) -> dict[str, str]:
    """Return the severity of each advisory. Those that the database does not know, or does not answer for, are missing."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = ask(name)["database_specific"]["severity"]
        except (urllib.error.HTTPError, KeyError, TypeError):
            continue
        except (OSError, ValueError):
            break
    return found


def advisory(address: str, name: str) -> Any:
    """Return the database's record of an advisory."""
    with urllib.request.urlopen(address + name, timeout=ADVISORY_SECONDS) as response:  # noqa: S310 - https, by ADVISORIES
        return json.load(response)


def judge(document: Mapping[str, Any], severities: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return the findings of pip-audit, a line for each package, and whether one of them is critical.

    Args:
        document: The report of pip-audit.
        severities: The severity of each advisory, as far as known.
    """
    packages = document["dependencies"]
    vulnerable = [each for each in packages if each.get("vulns")]
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    lines = [_found(each, severities) for each in vulnerable]
    critical = any(line.startswith(CRITICAL) for line in lines)
    lines.append(f"{len(vulnerable)} of {len(packages) - len(skipped)} packages have known vulnerabilities")
    if skipped:
        lines.append(
            f"{len(skipped)} packages are not known to the service: {', '.join(sorted(skipped)[:5])} ..."
        )
    if critical:
        lines.append(
            "raise the versions of the critical ones with `make lock`; add `--ignore-vuln ID` to OPTIONS in infra/audit.py "
            "for one that cannot be reached here, with the reason"
        )
    return lines, critical


def _found(package: Mapping[str, Any], severities: Mapping[str, str]) -> str:
    known, worst = [], "WARNING"
    for each in package["vulns"]:
        fixed = ", ".join(each["fix_versions"]) or "no version yet"
        rated = {severities[name] for name in names_of(each) if name in severities}
        severity = CRITICAL if CRITICAL in rated else " or ".join(sorted(rated)) or "severity unknown"
        worst = CRITICAL if severity == CRITICAL else worst
        known.append(f"{each['id']} ({severity.lower()}, fixed in {fixed})")
    return f"{worst}: {package['name']} {package['version']}: {'; '.join(known)}"


if __name__ == "__main__":
    sys.exit(main())

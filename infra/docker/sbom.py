"""Lists the packages in an image, as CycloneDX 1.5: run inside it, `python -I - NAME VERSION < sbom.py`. Standard library only.

Python distributions are those of the interpreter's path, Debian packages those of dpkg's status file, where there is one.
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from platform import python_version
from typing import Any

DPKG = Path("/var/lib/dpkg/status")
INSTALLED = "install ok installed"


def python_packages() -> Iterator[dict[str, Any]]:
    """Yield a component for each distribution."""
    for each in distributions():
        name, version = each.metadata["Name"], each.version
        licence = each.metadata.json.get("license_expression")
        component = component_of("pypi", name.lower().replace("_", "-"), version)
        yield component | ({"licenses": [{"expression": licence}]} if licence else {})


def debian_packages(status: str) -> Iterator[dict[str, Any]]:
    """Yield a component for each package that is installed according to dpkg's status."""
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " "
        )
        if fields.get("Status") == INSTALLED:
            yield component_of("deb/debian", fields["Package"], fields["Version"])


def component_of(kind: str, name: str, version: str) -> dict[str, Any]:
    """Return the CycloneDX component of a package; a purl's version has its own escapes."""
    escaped = version.replace("+", "%2B").replace(":", "%3A")
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": (purl := f"pkg:{kind}/{name}@{escaped}"),
        "bom-ref": purl,
    }


def document(name: str, version: str, status: str) -> dict[str, Any]:
    """Return the document, with each package once, sorted by name."""
    interpreter = component_of("generic", "python", python_version())
    found = {each["purl"]: each for each in (interpreter, *python_packages(), *debian_packages(status))}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": [found[purl] for purl in sorted(found)],
    }


if __name__ == "__main__":
    _, image, release = sys.argv
    print(json.dumps(document(image, release, DPKG.read_text() if DPKG.exists() else ""), indent=1))

"""Renders the names of the packages of services/ in pyproject.toml: the workspace, mypy's path and the import contracts.

The contracts name every service in some twenty lists, and a list of TOML cannot refer to another. So each list has them on a line
of its own that ends with `# services`, or with the form that it takes: `# services: src`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from infra.scenarios.manifest import Scenario
from infra.scenarios.text import with_region

_FORMS: Final[Mapping[str, Callable[[Scenario], str]]] = {
    "": lambda each: each.folder,
    "distributions": lambda each: each.distribution,
    "src": lambda each: f"services/{each.folder}/src",
    "domains": lambda each: f"{each.folder}.domain" if each.pure_domain else "",
}
_LINE: Final = re.compile(r"^( *)[^\n]*# services(: (\w+))?$", re.MULTILINE)


def workspace_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return pyproject.toml with these scenarios on each line that names the services, and as sources of the workspace."""

    def line(match: re.Match[str]) -> str:
        form = _FORMS[match[3] or ""]
        named = ", ".join(f'"{name}"' for each in scenarios if (name := form(each)))
        return f"{match[1]}{named}, # services{match[2] or ''}"

    sources = [f"{each.distribution} = {{ workspace = true }}" for each in scenarios]
    return with_region(_LINE.sub(line, text), "sources", sources)

"""Programs that arguments name: `module:NAME`, as for web servers."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from streamtable_spark.errors import ConfigurationError


def load(text: str) -> Any:
    """Import a module and return what it calls NAME. The current folder counts as one of modules.

    Args:
        text: MODULE:NAME.

    Raises:
        ConfigurationError: There is no such module or name, or the module cannot be imported.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise ConfigurationError(f"--graph {text!r}: MODULE:NAME is needed, such as shop.groups:ORDERS")
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # an import runs a program, which may raise anything
        raise ConfigurationError(
            f"--graph {text}: {type(error).__name__}: {error}. The module has to be importable here, and where tasks run: "
            "install its package, or give it to spark-submit with --py-files"
        ) from error
    return found

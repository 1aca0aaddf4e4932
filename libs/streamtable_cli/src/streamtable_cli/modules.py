"""Imports groups from user code: `module:NAME`, as `--graph` and `graph show` take them."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from streamtable import Group
from streamtable.errors import ConfigurationError

_SPEC = re.compile(r"(?P<module>[^:()]+):(?P<path>[^:()]+)(?P<call>\((?P<text>[^()]*)\))?")


def load_group(spec: str) -> Group[Any, Any]:
    """Import a module (the current folder comes first) and return the group in it.

    Args:
        spec: `module:NAME`; NAME may have dots. `module:function(text)` calls a function with this text, or with
            nothing if there is none: where a group's name is a setting, a function makes it.

    Raises:
        ConfigurationError: the module cannot be imported, there is no group of that name in it, or the function fails.
    """
    match = _SPEC.fullmatch(spec)
    module, path = match.group("module", "path") if match else ("", "")
    if match is None or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise ConfigurationError(
            f"{spec!r} names no group: expected module:NAME, for example shop.counting:COUNTS"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the module of the user may raise anything
        raise ConfigurationError(
            f"module {module!r} cannot be imported ({type(error).__name__}: {error}); it is looked for in this folder "
            "and among the installed packages"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            groups = [each for each, value in vars(found).items() if isinstance(value, Group)]
            there = f"; its groups are {', '.join(groups)}" if groups else "; there is no group in it"
            raise ConfigurationError(f"{spec!r}: {name!r} is not there{there}")
        found = getattr(found, name)
    if match["call"]:
        text = match["text"]
        try:
            found = found(text) if text else found()
        except Exception as error:  # the function of the user may raise anything
            raise ConfigurationError(f"{spec!r} fails ({type(error).__name__}: {error})") from error
    if not isinstance(found, Group):
        raise ConfigurationError(f"{spec!r} is no streamtable.Group, but a {type(found).__name__}")
    return found

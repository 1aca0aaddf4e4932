"""Imports groups and flows from user code, given as `module:NAME` to `--graph` and `graph show`."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from streamtable import Group
from streamtable.errors import ConfigurationError, GraphError
from streamtable.graph.group import groups_in

_SPEC = re.compile(r"(?P<module>[^:()]+):(?P<path>[^:()]+)(?P<call>\((?P<text>[^()]*)\))?")


def load_group(spec: str) -> Group[Any, Any]:
    """Return the only group of a program, like `load_groups`. Raises `ConfigurationError` for a flow of several groups."""
    found = _named(spec)
    groups = _groups_of([found], spec)
    if len(groups) > 1:
        flow = str(getattr(found, "name", ""))  # its groups are named `<flow>` and `<flow>-<step>`
        each = ", ".join(f"{spec}.group({group.name[len(flow) + 1 :]})" for group in groups)
        raise ConfigurationError(f"{spec!r} is a flow of several groups: name one of {each}")
    return groups[0]


def load_groups(spec: str) -> list[Group[Any, Any]]:
    """Import a module (the current folder comes first) and return the group in it, or the groups of the flow in it.

    Args:
        spec: `module:NAME`; NAME may have dots. `module:function(text)` calls a function, with this text if there is
            one, for groups whose name is a setting.

    Raises:
        ConfigurationError: The module cannot be imported, it has no group or flow of that name, or the function fails.
    """
    return _groups_of([_named(spec)], spec)


Program = list[Group[Any, Any]] | Callable[[], object]


def load_program(spec: str) -> Program:
    """Return the groups of a group, a flow or a list of them, or a function without arguments that runs a program.

    Raises:
        ConfigurationError: As `load_groups`.
    """
    found = _named(spec)
    if isinstance(found, list | tuple):
        return _groups_of(found, spec)
    if not _is_program(found) and callable(found) and not isinstance(found, type):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise ConfigurationError(
                f"{spec!r} takes arguments: name a function without any, or write {spec}(TEXT) if it makes the group"
            ) from error
        program: Callable[[], object] = found
        return program
    return _groups_of([found], spec)


def _groups_of(found: Iterable[Any], spec: str) -> list[Group[Any, Any]]:
    try:
        return groups_in(found)
    except GraphError as error:  # neither a group nor a flow, or the parts of a flow contradict each other
        raise ConfigurationError(f"{spec!r}: {error}") from error


def _is_program(value: object) -> bool:
    """Return whether this is a group or a flow, without calling user code."""
    return isinstance(value, Group) or isinstance(getattr(type(value), "groups", None), property)


def _named(spec: str) -> Any:
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
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ConfigurationError(
            f"module {module!r} cannot be imported ({type(error).__name__}: {error}); it is searched in this folder "
            "and among the installed packages"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            programs = [each for each, value in vars(found).items() if _is_program(value)]
            there = f"; its groups and flows are {', '.join(programs)}" if programs else "; it has none"
            raise ConfigurationError(f"{spec!r}: {name!r} does not exist{there}")
        found = getattr(found, name)
    if match["call"]:
        text = match["text"]
        try:
            found = found(text) if text else found()
        except Exception as error:  # a user's function may raise anything
            raise ConfigurationError(f"{spec!r} fails ({type(error).__name__}: {error})") from error
    return found

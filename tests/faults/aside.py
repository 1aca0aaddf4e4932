"""Tests that run concurrently, because they mostly wait for the timeouts of sessions and transactions of dead processes.

A test decorated with `aside` takes any of `GIVEN` and may have parameters. When the first one runs, all selected ones
are started in threads, a few at a time; each then waits for its own outcome, and its result goes into the summary.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

import pytest
from tests.faults.arena import Arena

ArenaMaker = Callable[..., Arena]
Body = Callable[..., str | None]
GIVEN: Final = ("make", "folder", "seed", "broker", "wire")
"""A factory of arenas on the common broker, a folder for this test, the seed, that broker, and the proxy in front of it.

The proxy is used by one test at a time."""


class Results(Protocol):
    def result(self, node: str) -> str | None: ...


def aside(body: Body) -> Callable[..., None]:
    """Make a test from a function `(some of GIVEN, parameters...) -> line for the summary, or None`."""

    def test(
        outcomes: Results,
        tell: Callable[[str], None],
        request: pytest.FixtureRequest,
        **_: Any,
    ) -> None:
        line = outcomes.result(request.node.nodeid)
        if line is not None:
            tell(line)

    own = [p for p in inspect.signature(test).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    parameters = [p for p in inspect.signature(body).parameters.values() if p.name not in GIVEN]
    test.__name__ = test.__qualname__ = body.__name__
    test.__module__ = body.__module__
    test.__dict__["body"] = body
    # pytest reads the fixtures and parameters to pass from here.
    test.__dict__["__signature__"] = inspect.Signature([*own, *parameters])
    return test


def body_of(test: Callable[..., Any]) -> Body | None:
    body: Body | None = getattr(test, "body", None)
    return body


def needs_of(body: Body) -> set[str]:
    """The names in `GIVEN` that it takes."""
    return inspect.signature(body).parameters.keys() & set(GIVEN)

"""Tests that run side by side: most of their time is waiting for the sessions and transactions of the dead to end.

A test decorated with `aside` names what it needs of `GIVEN`, and may have parameters. All chosen ones begin when the first
is asked for, a few at a time, in threads; each then waits for its own outcome, and what it returns goes into the summary.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

import pytest
from tests.faults.arena import Arena

ArenaMaker = Callable[..., Arena]
Body = Callable[..., str | None]
GIVEN: Final = ("make", "folder", "seed", "broker", "wire")
"""A maker of arenas on the common broker, a folder of the test's own, the seed, that broker, and the proxy in front of it.

The proxy serves one test at a time."""


class Results(Protocol):
    def result(self, node: str) -> str | None: ...


def aside(body: Body) -> Callable[..., None]:
    """Make a test of a function `(what it needs of GIVEN, parameters...) -> line for the summary, or None`."""

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
    # What pytest reads to know which fixtures and parameters to pass.
    test.__dict__["__signature__"] = inspect.Signature([*own, *parameters])
    return test


def body_of(test: Callable[..., Any]) -> Body | None:
    body: Body | None = getattr(test, "body", None)
    return body


def needs_of(body: Body) -> set[str]:
    """What it needs of `GIVEN`."""
    return inspect.signature(body).parameters.keys() & set(GIVEN)

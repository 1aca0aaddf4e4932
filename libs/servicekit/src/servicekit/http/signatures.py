"""Signatures of handlers that are generated for a declared route."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def with_parameters(handler: F, parameters: Mapping[str, Any], **defaults: Any) -> F:
    """Set the parameters that FastAPI passes to a handler with keyword arguments, as name -> type."""
    made = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=defaults.get(name, Parameter.empty))
        for name, kind in parameters.items()
    ]
    handler.__signature__ = Signature(made)  # type: ignore[attr-defined] # what inspect.signature() looks at first
    return handler

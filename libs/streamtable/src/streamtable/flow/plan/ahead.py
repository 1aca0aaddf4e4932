"""Tells whether a flow accepts records from further ahead than a grace makes up for.

Within `max_ahead`, a program whose clock is ahead, and which stamps its records itself, moves the watermark on. Beyond the
grace, the records of all others are late then.
"""

from collections.abc import Sequence
from datetime import timedelta

import structlog

from streamtable.flow.plan.nodes import Node
from streamtable.graph.group import EventTime

log = structlog.get_logger()

_DEFAULT = EventTime().max_ahead


def ahead_of_grace(nodes: Sequence[Node], event_time: EventTime) -> str | None:
    """Return the text that says so; None if `max_ahead` is within the grace of each step."""
    graces = [(node.grace_ms, node.label) for node in nodes if node.grace_ms is not None]
    ahead = event_time.max_ahead
    if not graces or (ahead is not None and ahead <= timedelta(milliseconds=min(graces)[0])):
        return None
    grace_ms, label = min(graces)
    accepted = "any time ahead" if ahead is None else f"up to {ahead.total_seconds():g} s ahead"
    return (
        f"records stamped {accepted} are accepted, and the grace is {grace_ms / 1000:g} s at {label}: see max_ahead of "
        "EventTime"
    )


def warn_of_ahead(flow: str, nodes: Sequence[Node], event_time: EventTime) -> None:
    """Log it if the flow has been given another `max_ahead` than the default, which its description mentions."""
    if event_time.max_ahead != _DEFAULT and (text := ahead_of_grace(nodes, event_time)) is not None:
        log.warning("max_ahead of a flow is larger than a grace", flow=flow, reason=text)

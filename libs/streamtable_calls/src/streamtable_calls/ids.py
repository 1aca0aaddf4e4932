"""The ids of the calls that a function is running for: the same for every attempt, so the other side can recognise a repeat."""

from collections.abc import Sequence
from contextvars import ContextVar

from streamtable.errors import GraphError

_RUNNING: ContextVar[Sequence[str]] = ContextVar("streamtable_calls")


def call_id() -> str:
    """Return the id of the call that runs, `<group>/<partition>/<number>`: an idempotency key.

    Every attempt of a call has the same id, over restarts and rebalances, and no other call of the group has it, also after a reset
    that empties its tables.

    Raises:
        GraphError: No call is running here, or it is one of a batch: see `call_ids`.
    """
    ids = call_ids()
    if len(ids) != 1:
        raise GraphError(f"{len(ids)} calls run together here: call_ids() has the id of each")
    return ids[0]


def call_ids() -> Sequence[str]:
    """Return the id of each call of a batch, in the order of the requests. Raises `GraphError` where no call is running."""
    try:
        return _RUNNING.get()
    except LookupError:
        raise GraphError("call_id() and call_ids() are for the function of a Call, while it runs") from None


def running(ids: Sequence[str]) -> None:
    """Set the ids of the calls that run in this context."""
    _RUNNING.set(ids)

"""Calls of APIs from the handlers of a group: durable, in the order of each key, retried, with exactly one result.

And inputs whose failing records are retried, in the order of each key.
"""

from streamtable_calls.call import Call
from streamtable_calls.errors import CallFailed, CallTimedOut, RetryAfter
from streamtable_calls.flow_calls import call_each
from streamtable_calls.ids import call_id, call_ids
from streamtable_calls.record_retries import retried
from streamtable_calls.retry import RateLimit, Retry

__all__ = [
    "Call",
    "CallFailed",
    "CallTimedOut",
    "RateLimit",
    "Retry",
    "RetryAfter",
    "call_each",
    "call_id",
    "call_ids",
    "retried",
]

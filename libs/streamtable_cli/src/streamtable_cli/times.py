"""Points in time on the command line."""

import re
from datetime import UTC, datetime, timedelta

from streamtable_admin.errors import Refused

_AGO = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
EXPECTED = (
    "a time with its zone (2026-03-01T12:00:00Z, 2026-03-01T12:00+01:00), or how long ago (90s, 15m, 2h, 1d)"
)


def milliseconds(text: str, now: float) -> int:
    """Return a point in time in milliseconds since 1970, as Kafka counts it.

    Args:
        text: A time in ISO 8601 with a zone, or an age: a number with s, m, h or d.
        now: The current time in seconds since 1970.

    Raises:
        Refused: It is neither. A time without a zone is ambiguous.
    """
    if match := _AGO.fullmatch(text):
        return int((now - int(match[1]) * _SECONDS[match[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            # Not by timestamp(): a float of seconds is below many a millisecond.
            return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        pass
    raise Refused(f"{text!r}: expected {EXPECTED}")

"""The reason why records are late for windows and joins: the input that has moved the watermark, and the setting that helps."""

from collections.abc import Mapping

from streamtable.base.event_time import InputTime

LATE_SHARE_MAX = 0.05
"""The share of a minute's records that may be late before it is reported."""
SILENCE = "(silence)"
"""Stands for the input that moved the watermark where none did: the inputs were idle, and it went on with the clock."""


def moved_by(times: Mapping[str, InputTime]) -> str:
    """Return the input that has moved the watermark to where it is, or `SILENCE`."""
    watermark_ms = max((each.watermark_ms for each in times.values()), default=None)
    return next((topic for topic, each in times.items() if each.stream_ms == watermark_ms), SILENCE)


def advice(mover: str) -> str:
    """Return the settings that would help. `mover`: the input that had moved the watermark, or `SILENCE`."""
    if mover == SILENCE:
        return (
            "the inputs were silent for EventTime.idle_after and the watermark went on without them: raise idle_after, or set "
            "it to None for a replay of history"
        )
    return (
        f"{mover} had moved the watermark. If its own events come in another order than they happened, raise the grace; if "
        "another input lagged or was idle meanwhile, raise EventTime.idle_after; if its times are wrong or ahead of the "
        "clock, correct time= or lower EventTime.max_ahead"
    )


def text(late: int, records: int, topic: str) -> str:
    """Return the fact as a sentence without its end."""
    share = late / max(records, late, 1)
    return f"{late} of {records} records ({share:.0%}) were late for {topic}"

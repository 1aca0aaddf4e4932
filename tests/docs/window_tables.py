"""The results of each kind of window for the input of the page about windows, and pictures of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from streamtable import EventTime, Long, Stream, String
from streamtable.flow import Flow, Hopping, Session, Sliding, Tumbling, Windowed
from streamtable_testing.tester import Tester

BEGAN_MS: Final = 1_600_000_000_000
"""The first second of the page: a full one for all windows."""
SECONDS: Final = (1, 4, 12, 9, 25, 3, 60)
"""The event times of the page's clicks, in the order of arrival. The last one closes all windows before it."""
GRACE: Final = timedelta(seconds=5)
WINDOWS: Final[Mapping[str, Any]] = {
    "tumbling": Tumbling(timedelta(seconds=10), grace=GRACE),
    "hopping": Hopping(timedelta(seconds=10), timedelta(seconds=5), grace=GRACE),
    "sliding": Sliding(timedelta(seconds=5), grace=GRACE),
    "session": Session(timedelta(seconds=5), grace=GRACE),
}
_CLICKS: Final[Stream[str, int]] = Stream("clicks", String(), Long())
_LATE: Final[Stream[str, int]] = Stream("late", String(), Long())


def rows_of(kind: str) -> list[list[str]]:
    """Return the table of a kind: each click, the rows that it changes, and the final results that come out with it."""
    flow = Flow("f", event_time=EventTime(idle_after=None))
    grouped = flow.stream(_CLICKS, time=lambda second: BEGAN_MS + 1000 * second).group_by_key()
    window = WINDOWS[kind]
    key = window.key(String())
    changes: Stream[Any, int] = Stream("changes", key, Long())
    finals: Stream[Any, int] = Stream("finals", key, Long())
    counted = grouped.window(window, late=_LATE).count("n")
    counted.changes().to(changes)
    counted.final().to(finals)
    rows, seen = [], [0, 0, 0]
    with Tester() as tester:
        for topic in (changes, finals, _LATE):
            tester.create(topic)
        tester.run(flow)
        for second in SECONDS:
            tester.emit(_CLICKS, "alice", second)
            new = []
            for number, stream in enumerate((changes, finals, _LATE)):
                records: Sequence[Any] = tester.records(stream)
                new.append(records[seen[number] :])
                seen[number] = len(records)
            changed, final, late = new
            text = "late" if late and not changed else said(changed)
            rows.append([str(second), text, said(final)])
    return rows


def said(records: Iterable[Any]) -> str:
    """Return windows with their counts: `0 to 10: 3`."""
    return ", ".join(
        f"{span(each.key)}: {'deleted' if each.value is None else each.value}" for each in records
    )


def span(window: Windowed[str]) -> str:
    """Return the bounds of a window in seconds after the first."""
    start, end = ((ms - BEGAN_MS) / 1000 for ms in (window.start_ms, window.end_ms))
    return f"{start:g} to {end:g}"


# ---- pictures --------------------------------------------------------------------------------------------------------

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs/explanation/windows"
_FROM, _TO, _SCALE = -5, 36, 17  # the seconds that are shown, and the width of one
_LANE, _TOP, _LEFT = 26, 44, 20
_STYLE: Final = (
    "text{font:13px sans-serif;fill:#1d2733}.axis{stroke:#7a8896}.bar{fill:#cfe3f7;stroke:#2b6cb0}"
    ".click{fill:#1d2733}.late{fill:none;stroke:#a1161f;stroke-width:1.5}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#8b98a5}.bar{fill:#1f3a57;stroke:#79b8ff}"
    ".click{fill:#e6edf3}.late{stroke:#ff9d9d}}"
)


def picture_of(kind: str) -> str:
    """Return the drawing of a kind: the clicks on a line of time, and below it each window that has closed."""
    rows = rows_of(kind)
    finals = [each.rsplit(": ", 1) for row in rows for each in row[2].split(", ") if each]
    bars = [(*_bounds(name), f"{name}: {count}") for name, count in finals]
    lanes: list[float] = []  # where the last bar of each ends
    drawn = []
    for start, end, text in sorted(bars):
        label = 7.5 * len(text) / _SCALE
        beside = label > end - start  # where the text does not fit into the bar
        label_end = end + label if beside else end
        free = next((number for number, until in enumerate(lanes) if until < start), len(lanes))
        lanes[free:] = [label_end, *lanes[free + 1 :]]
        y = _TOP + _LANE * free
        width = max((end - start) * _SCALE, 3)
        drawn.append(
            f'<rect class="bar" x="{_x(start):g}" y="{y}" width="{width:g}" height="20" rx="3"/>'
            f'<text x="{_x(start) + (width if beside else 0) + 5:g}" y="{y + 15}">{escape(text)}</text>'
        )
    width, height = _x(_TO) + _LEFT, _TOP + _LANE * len(lanes) + 6
    axis = f'<path class="axis" d="M{_x(_FROM):g} 30H{_x(_TO):g}"/>'
    ticks = "".join(
        f'<path class="axis" d="M{_x(second):g} 26v8"/><text x="{_x(second) - 5:g}" y="16">{second}</text>'
        for second in range(0, _TO, 5)
    )
    clicks = "".join(
        f'<circle class="{"late" if row[1] == "late" else "click"}" cx="{_x(float(row[0])):g}" cy="30" r="4"/>'
        for row in rows
        if float(row[0]) < _TO
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}" '
        f'role="img" aria-label="{kind} windows"><style>{_STYLE}</style>{axis}{ticks}{"".join(drawn)}{clicks}</svg>\n'
    )


def _x(second: float) -> float:
    return _LEFT + (second - _FROM) * _SCALE


def _bounds(name: str) -> tuple[float, float]:
    match = re.fullmatch(r"(-?[\d.]+) to (-?[\d.]+)", name)
    assert match is not None, name
    return float(match[1]), float(match[2])


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for each in WINDOWS:
        (PICTURES / f"{each}.svg").write_text(picture_of(each), encoding="utf-8")

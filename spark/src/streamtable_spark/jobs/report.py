"""The report of an audit, for programs (JSON) and for people (one HTML page without external resources)."""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;margin:1rem 0;width:100%}"
    "th,td{text-align:left;padding:.3rem .7rem;border-bottom:1px solid #d0d7de;vertical-align:top}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}"
    ".ok{color:#116329}.bad{color:#a40e26}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}"
    ".ok{color:#56d364}.bad{color:#ff7b72}}"
)


@dataclass(frozen=True)
class Difference:
    """A key whose row differs from the computed one.

    Attributes:
        key: The key as text, with bytes that are not text in hexadecimal digits.
        difference: `missing`, `extra`, `different`, `unreadable` or `overwritten`.
        expected: The computed row as JSON; None if there should be none.
        live: The row in the table; None if there is none, or it cannot be decoded.
        live_value: The bytes of the row in the table, in hexadecimal digits.
        table: The name of the table: `table`, or a state's name.
    """

    partition: int
    key: str
    difference: str
    expected: str | None
    live: str | None
    live_value: str | None
    table: str = "table"


@dataclass(frozen=True)
class PartitionReport:
    """One partition of the cut.

    Attributes:
        inputs: The end offset of the records that were read, by topic.
        changelog: The end offset of the changelog records that were read.
        expected_digest: The digest of all computed rows; equal to `live_digest` if all bytes are equal.
    """

    partition: int
    inputs: Mapping[str, int]
    changelog: int
    expected_rows: int
    live_rows: int
    expected_digest: str
    live_digest: str
    differences: int


@dataclass(frozen=True)
class Report:
    """An audit of one group.

    Attributes:
        compared: The fields that must be equal; empty to compare whole rows.
        events: The number of events that were counted; `unfit` ones could not be decoded, and are not in the dead letters.
        differences: The number of rows that differ.
        overwritten: The number of rows of the cut that cannot be compared: written again since, and removed by compaction.
        keys: The first keys of the differing and the overwritten rows.
    """

    group: str
    scenario: str
    at: str
    code: str
    compared: Sequence[str]
    events: int
    unfit: int
    differences: int
    overwritten: int
    partitions: Sequence[PartitionReport]
    keys: Sequence[Difference]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    def as_html(self) -> str:
        """Return the report as an HTML page. All text from topics is escaped."""
        verdict = '<p class="ok">All rows are as the inputs say.</p>'
        if self.differences:
            keys = "1 key is" if self.differences == 1 else f"{self.differences} keys are"
            verdict = f'<p class="bad">{keys} not as the inputs say.</p>'
        compared = ", ".join(self.compared) or "whole rows"
        facts = (
            f"<p>Scenario {html.escape(self.scenario)}; compared: {html.escape(compared)}; {self.events} events counted, "
            f"{self.unfit} unreadable and not in the dead letters; {self.overwritten} rows overwritten and compacted away "
            f"before they were read; {html.escape(self.at)}; code {html.escape(self.code)}.</p>"
        )
        rows = [(k.partition, k.key, k.difference, k.expected, k.live or k.live_value) for k in self.keys]
        found = _table(("partition", "key", "difference", "expected", "live"), rows)
        shown = f"<h2>The first {len(rows)}</h2>{found}" if rows else ""
        parts = _table(
            ("partition", "inputs", "changelog", "rows expected", "rows live", "differences", "same bytes"),
            [
                (
                    each.partition,
                    ", ".join(f"{topic} to {offset}" for topic, offset in each.inputs.items()),
                    each.changelog,
                    each.expected_rows,
                    each.live_rows,
                    each.differences,
                    "yes" if each.expected_digest == each.live_digest else "no",
                )
                for each in self.partitions
            ],
        )
        title = f"Audit of {html.escape(self.group)}"
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
            f'<meta name="viewport" content="width=device-width"><h1>{title}</h1>{verdict}{facts}{shown}'
            f"<h2>Partitions</h2>{parts}</html>\n"
        )


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value}</td>'
    return "<td>none</td>" if value is None else f"<td><code>{html.escape(str(value))}</code></td>"

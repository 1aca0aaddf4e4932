"""The offsets that `streamtable group reset --to` sets, for each partition."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamtable.base.types import Committed, TopicPartition, Watermarks
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import NotFound, Refused
from streamtable_cli.times import EXPECTED, milliseconds

JSON_BYTES_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Move:
    """The committed offset of a partition before and after. `before` is None if nothing was committed."""

    place: TopicPartition
    before: int | None
    after: int


def parse_targets(to: str, topics: list[str]) -> Mapping[str, Any] | None:
    """Return the JSON form of WHERE; None for the other forms. Raises `Refused`."""
    if to.startswith("@"):
        try:
            with Path(to[1:]).open(encoding="utf-8") as file:
                to = file.read(JSON_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            raise Refused(f"--to {to}: cannot be read: {error}") from error
    elif not to.lstrip().startswith("{"):
        return None
    if len(to) > JSON_BYTES_MAX:
        raise Refused(f"--to: more than {JSON_BYTES_MAX:,} characters of JSON")
    if topics:
        raise Refused("--topic and offsets as JSON exclude each other: the JSON names the topics")
    try:
        found = json.loads(to, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise Refused(f"--to: not valid JSON: {error}") from error
    if not isinstance(found, dict) or not found or {} in found.values():
        raise Refused('--to: expected offsets by topic: {"topic": {"0": 17}}')
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = sorted({name for name, _ in pairs if [each for each, _ in pairs].count(name) > 1})
        raise ValueError(f"{', '.join(twice[:5])} stands twice")
    return found


def places_to_reset(
    cluster: Cluster,
    group: str,
    committed: Iterable[TopicPartition],
    targets: Mapping[str, Any] | None,
    topics: list[str],
) -> list[TopicPartition]:
    """Return all partitions to reset. Raises `NotFound`, `Refused`."""
    known = cluster.admin.topic_partitions()
    names = sorted(targets if targets is not None else topics or {place.topic for place in committed})
    if not names:
        raise NotFound(f"group {group!r} has no committed offsets: name its topics with --topic")
    if missing := [name for name in names if name not in known]:
        raise NotFound(f"there is no topic {missing[0]!r}")
    places = []
    for name in names:
        given = targets[name] if targets is not None else None
        if not isinstance(given, dict):
            places += [TopicPartition(name, number) for number in range(known[name])]
            continue
        for text in given:
            digits = text.isascii() and text.isdecimal() and len(text) < 10  # noqa: PLR2004 - more are no partition
            if not (digits and text == str(int(text)) and int(text) < known[name]):
                raise Refused(f"--to: {name!r} has no partition {text[:40]!r}: it has 0 to {known[name] - 1}")
            places.append(TopicPartition(name, int(text)))
    return sorted(set(places))


def target_moves(
    cluster: Cluster,
    to: str,
    targets: Mapping[str, Any] | None,
    committed: Mapping[TopicPartition, Committed],
    marks: Mapping[TopicPartition, Watermarks],
) -> list[Move]:
    """Return the moves. Raises `Refused` for an offset outside of its partition, or a malformed WHERE."""
    if targets is not None:
        after = {place: _offset(place, _given(targets[place.topic], place), marks[place]) for place in marks}
    elif to in ("earliest", "latest"):
        after = {place: _offset(place, to, mark) for place, mark in marks.items()}
    else:
        try:
            moment = milliseconds(to, time.time())
        except Refused:
            raise Refused(f"--to {to!r}: expected earliest, latest, offsets as JSON, or {EXPECTED}") from None
        found = cluster.admin.offsets_at(marks, moment)
        after = {p: marks[p].high if (first := found[p]) is None else first for p in marks}
    return [
        Move(place, committed[place].next_offset if place in committed else None, after[place])
        for place in sorted(marks)
    ]


def _given(of_topic: Any, place: TopicPartition) -> Any:
    return of_topic[str(place.partition)] if isinstance(of_topic, dict) else of_topic


def _offset(place: TopicPartition, given: Any, marks: Watermarks) -> int:
    match given:
        case "earliest":
            return marks.low
        case "latest":
            return marks.high
        case int() if not isinstance(given, bool):
            if marks.low <= given <= marks.high:
                return given
            raise Refused(f"--to: {place} holds {marks.low} to {marks.high}, not {given}")
    raise Refused(f"--to: {place}: expected an offset, earliest or latest, not {str(given)[:40]!r}")

"""The search for waiting records that records of a batch may match, but for those that are in a dict."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from streamtable.flow.joins.recent_records import RecentRecords
from streamtable.flow.joins.rules import LEFT, RIGHT, Bounds, Side, other_side
from streamtable.flow.joins.waiting_records import older_records, replace_record
from streamtable.handlers.state_table import ExpiringLog

if TYPE_CHECKING:
    from streamtable.flow.joins.frozen_records import FrozenRecords


class WaitingLookup:
    """The waiting records that were found for the records of a batch: frozen ones, and those in the table alone.

    Args:
        log: The rows.
        recent: The records that are in memory.
        bounds: Which records match.
        unmatched: The sides whose records are followed.

    Attributes:
        found: Of each side: the records by key, in the order of time.
        earliest: Of each side: the time before which all records have expired.
    """

    def __init__(
        self, log: ExpiringLog[Any], recent: RecentRecords, bounds: Bounds, unmatched: frozenset[Side]
    ) -> None:
        self.found: tuple[dict[bytes, list[bytes]], ...] = {}, {}
        self._log = log
        self._recent = recent
        self._bounds = bounds
        self._unmatched = unmatched
        self._gone_before_ms = log.gone_before_ms()
        self.earliest = tuple(self._gone_before_ms - bounds.life_ms(side) for side in (LEFT, RIGHT))
        # Of followed sides: by record, where it is frozen.
        self._frozen: dict[bytes, tuple[FrozenRecords, int]] = {}

    def look_up(self, sides: Sequence[Side], keys: Sequence[bytes], times: Sequence[int]) -> None:
        """Find the records that may match these. To be called once."""
        self._recent.make_room(self._log.cache_bytes, self._log.commits, self._gone_before_ms)
        for side in sorted(set(sides)):
            mine = [each == side for each in sides]
            self._find(side, list(compress(keys, mine)), list(compress(times, mine)))

    def _find(self, side: Side, keys: Sequence[bytes], times: Sequence[int]) -> None:
        """Find the records that may match these of one side."""
        waiting = other_side(side)
        earliest, latest = _extremes(keys, times)
        frozen = self._recent.frozen(waiting)
        if frozen:
            self._find_frozen(frozen, waiting, earliest, latest)
        may = self._recent.may_be_older(waiting, list(map(hash, earliest)), self._gone_before_ms)
        stored = set(compress(earliest, may))
        if stored:
            self._find_stored(side, [each for each in zip(keys, times, strict=True) if each[0] in stored])
        for records in self.found[waiting].values():
            records.sort()

    def _find_frozen(
        self,
        frozen: "Iterable[FrozenRecords]",
        waiting: Side,
        earliest: Mapping[bytes, int],
        latest: Mapping[bytes, int],
    ) -> None:
        """Find the frozen records of one side that may match records of the other; their times are between these."""
        from streamtable.flow.joins.frozen_records import KeySpans  # noqa: PLC0415 - numpy takes 20 MB

        before, after = self._bounds.matching(other_side(waiting), 0)
        first = self.earliest[waiting]
        since = [max(time + before, first) for time in earliest.values()]
        until = [latest[key] + after for key in earliest]
        spans = KeySpans(earliest.keys(), since, until)
        found, followed = self.found[waiting], waiting in self._unmatched
        for each in frozen:
            for key, record, at in each.of(spans):
                found.setdefault(key, []).append(record)
                if followed:
                    self._frozen[record] = each, at

    def _find_stored(self, side: Side, asked: Iterable[tuple[bytes, int]]) -> None:
        """Find the records that are only in the table and may match one side's records, with these keys and times."""
        times: dict[bytes, list[int]] = {}
        for key, time in asked:
            times.setdefault(key, []).append(time)
        rows = self._log.stored(self._bounds.all_spans(side, times))
        found = self.found[other_side(side)]
        for key, record in older_records(rows, times.keys(), self._recent.since):
            found.setdefault(key, []).append(record)

    def replace(self, side: Side, key: bytes, old: bytes, new: bytes) -> None:
        """Put a record that has matched in the place of what it was, if it was found."""
        replace_record(self.found[side].get(key, []), old, new)
        frozen = self._frozen.pop(old, None)
        if frozen is not None:
            records, at = frozen
            records.mark_matched(at)


def _extremes(keys: Sequence[bytes], times: Sequence[int]) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Return the earliest and the latest time of each key."""
    earliest = dict(zip(keys, times, strict=True))
    if len(earliest) == len(keys):
        return earliest, earliest
    latest = earliest.copy()
    for key, time in zip(keys, times, strict=True):
        if time < earliest[key]:  # noqa: PLR1730 - for each record
            earliest[key] = time
        if time > latest[key]:  # noqa: PLR1730 - the same
            latest[key] = time
    return earliest, latest

"""Dead letters of groups as JSON, and their replay on request."""

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from console.clusters import LIMITS, Clusters
from console.decode import PageDecoder
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater, StreamtableError
from streamtable_admin.deadletter_log import DeadLetterLog, LoggedDeadLetter, ReplayTimeouts
from streamtable_admin.errors import NotFound, Refused

LETTERS_MAX: Final = 500
WINDOWS: Final = (1_000, 20_000)
"""The number of latest offsets of each partition that are read for a list: first, and if there are too few letters in them.
The marker of a replayed letter stands behind it, so that these are read to their end, or not at all."""
RAW_BYTES_MAX: Final = 4096
_TIMEOUTS: Final = ReplayTimeouts(open=4.0, commit=4.0)


def letter_document(letter: LoggedDeadLetter, decoder: PageDecoder) -> dict[str, Any]:
    """Return a dead letter as JSON."""
    record = letter.record
    return {
        "letter": letter.name,
        "time": letter.time,
        "origin": letter.origin_document(),
        "attempt": letter.origin.attempt if letter.origin else None,
        "error": letter.error,
        "message": letter.message,
        "key": decoder.show(record.key, record.headers, "key"),
        "value": decoder.show(record.value, record.headers),
        "value_omitted_bytes": letter.omitted_bytes,
        "raw": {"key": _hex(record.key), "value": _hex(record.value)},
        "replayed": letter.replayed,
    }


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of all groups. Any thread."""

    clusters: Clusters

    def latest(self, group: str, limit: int) -> tuple[list[LoggedDeadLetter], bool]:
        """Return the latest letters of a group, the latest first, and whether all that belong to them were read.

        Raises `NoSuchTopic`, `RetryLater`.
        """
        letters: list[LoggedDeadLetter] = []
        with self.clusters.connected() as cluster:
            marks = cluster.admin.watermarks(cluster.partitions(DeadLetterLog(cluster, group).topic))
            for window in WINDOWS:
                reached = dict[TopicPartition, int]()
                found = DeadLetterLog(cluster, group, window, LIMITS).read(reached=reached)
                whole = all(reached[place] >= mark.high for place, mark in marks.items())
                if whole or window == WINDOWS[0]:
                    letters = found
                counts = Counter(each.record.place for each in found)
                few = [p for p, mark in marks.items() if mark.high - mark.low > window and counts[p] < limit]
                if not (whole and few):
                    break
        letters.sort(key=lambda each: (each.record.timestamp, each.id), reverse=True)
        return letters[:limit], whole and not few

    def replay(self, group: str, names: Collection[str], *, again: bool) -> dict[str, list[str]]:
        """Replay dead letters.

        Args:
            group: The group.
            names: The letters: PARTITION:OFFSET of each.
            again: Also replay letters that were replayed before.

        Returns:
            The names of the letters that were `sent`, those that had been replayed `before`, and the `rows`: those that hold
            a timer or another row that fell due, which cannot be replayed.

        Raises:
            NotFound: A letter, or the dead-letter or retry topic of the group, does not exist. Nothing was sent.
            Refused: A letter cannot be replayed. Nothing was sent.
            RetryLater: Kafka failed; the replay can be retried, because sent letters are marked.
        """
        with self.clusters.connected() as cluster:
            log = DeadLetterLog(cluster, group, limits=LIMITS)
            try:
                done = log.replay(
                    lambda: log.named(names, complete=True), again=again, now=time.time, timeouts=_TIMEOUTS
                )
            except (NotFound, Refused, RetryLater):
                raise
            except StreamtableError as error:
                # The next replay aborts the open transaction of this one, and finds the sent letters by their markers.
                raise RetryLater(f"Kafka did not commit the replay: {error.message}") from error
        return {"sent": _names(done.sent), "before": _names(done.before), "rows": _names(done.rows)}


def _names(letters: Collection[LoggedDeadLetter]) -> list[str]:
    return sorted(each.name for each in letters)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data[:RAW_BYTES_MAX].hex()

"""A rebuild in a process of its own that a test can kill at a point: `python halted_rebuild.py POINT ARGUMENTS`.

At the point it stops, until it is killed. POINT is the name of a step, after which it stops, or `half written`: half of a
partition is then sent to Kafka in an open transaction, and partition 0 is committed.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from streamtable_spark.jobs import rebuild
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.writer import ChangelogWriter, Written

HALF = "half written"
LONG_S = 300.0


class HalfWriter(ChangelogWriter):
    """Defined in the program itself, so that its code is sent to Spark's workers."""

    def _partition(self, partition: int, records: Iterable[Any]) -> Written:
        return super()._partition(partition, records if partition == 0 else self._half(records))

    @staticmethod
    def _half(records: Iterable[Any]) -> Iterator[Any]:
        found = list(records)
        yield from islice(found, len(found) // 2)
        time.sleep(LONG_S)


def stand_still(point: str, reached: str) -> None:
    if reached == point:
        print(reached, flush=True)  # noqa: T201 - the test waits for it
        time.sleep(LONG_S)


if __name__ == "__main__":
    if sys.argv[1] == HALF:
        rebuild.ChangelogWriter = HalfWriter  # type: ignore[attr-defined] # in its place, in this process
    rebuild.rebuild = partial(rebuild.rebuild, reached=partial(stand_still, sys.argv[1]))
    sys.exit(ended(rebuild.main, sys.argv[2:]))

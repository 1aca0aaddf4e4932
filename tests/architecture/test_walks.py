"""A newcomer's walk through the core: how many functions, in how many files, lie between two places."""

import traceback
from pathlib import Path

from streamtable import Group, Input, Long, Persist, Stream, String
from streamtable.handlers.context import Context
from streamtable_testing.tester import Tester

FUNCTIONS_MAX = 9
FILES_MAX = 5
CLICKS = Stream("clicks", String(), Long())


def test_a_record_comes_from_the_poll_to_a_plain_handler_through_nine_functions_in_five_files(
    tester: Tester,
) -> None:
    walked: list[traceback.FrameSummary] = []

    def count(ctx: Context[str, int], clicks: int) -> None:
        walked.extend(traceback.extract_stack()[:-1])
        ctx.set((ctx.value or 0) + clicks)

    tester.run(Group("counts", Input(CLICKS, count), Persist(Long())))
    tester.emit(CLICKS, "a", 1)
    polled = [(frame.name, Path(frame.filename).name) for frame in walked].index(("_step", "member.py"))
    between = [f"{Path(frame.filename).name}:{frame.name}" for frame in walked[polled:]]
    assert len(between) <= FUNCTIONS_MAX, between
    assert len({frame.filename for frame in walked[polled:]}) <= FILES_MAX, between

"""Changes of counts as server-sent events."""

from contextlib import ExitStack
from types import TracebackType

from click_count.counts import Answer, Change, Counts, Watch, age_seconds
from servicekit.events import ServerEvent, Source
from streamtable.errors import StreamtableError


class Changes:
    """A context whose source gives a user's count and its changes, or the changes of all users with a prefix.

    Args:
        counts: the table.
        key: of the user; None: `prefix` counts.
        prefix: of the users' ids.
    """

    def __init__(self, counts: Counts, *, key: str | None = None, prefix: str | None = None) -> None:
        self._counts = counts
        self._key = key
        self._prefix = prefix
        self._stack = ExitStack()
        self._first: ServerEvent | None = None
        self._watch: Watch | None = None
        self._ended = False

    def __enter__(self) -> Source:
        with ExitStack() as stack:
            self._watch = stack.enter_context(self._counts.watch(key=self._key, prefix=self._prefix))
            age_seconds(self._counts)  # not before the copy is complete
            if self._key is not None:
                # Read after the watch was opened: what changes in between comes twice rather than not at all.
                self._first = _event(self._key, self._counts.answer(self._key))
            self._stack = stack.pop_all()
        return self._next

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _next(self, timeout: float) -> ServerEvent | None:
        assert self._watch is not None
        if self._ended or self._watch.ended:
            raise StopIteration
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            change = self._watch.next(timeout)
        except StreamtableError:
            self._ended = True
            return ServerEvent("missed", {})
        return None if change is None else _event(change.key, change)


def _event(user: str, at: Answer | Change) -> ServerEvent:
    data = {"user_id": user, "count": at.value, "partition": at.partition, "offset": at.offset}
    return ServerEvent("count", data, f"{at.partition}-{at.offset}")

"""A client that reads rows from a view repeatedly while faults are injected."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from tests.faults.arena import Arena
from tests.faults.oracle import expected_total

from streamtable import App, Kafka, View
from streamtable.errors import RetryLater

PAUSE_SECONDS = 0.01


class Reader(threading.Thread):
    """Reads rows of the kind `order`, whose values per key must never go back.

    Attributes:
        answers: The number of rows it has read.
        refusals: The number of reads that the view refused.
    """

    def __init__(self, view: View[str, Any], keys: Sequence[str]) -> None:
        super().__init__(name="reader", daemon=True)
        self.answers = self.refusals = 0
        self.view = view
        self._wrong: list[str] = []
        self._keys = keys
        self._ended = threading.Event()

    @classmethod
    @contextmanager
    def of(cls, arena: Arena, bootstrap_servers: str) -> Iterator[Self]:
        """Read the arena's table during the block. Raises `AssertionError` at its end if a row went back."""
        kafka, folder = Kafka(bootstrap_servers), arena.folder / "read"
        with App(kafka, folder, name="read").view(arena.group.table) as view:
            reader = cls(view, arena.keys)
            reader.start()
            try:
                yield reader
            finally:
                reader.end()
        assert not reader._wrong, f"the view went back: {reader._wrong[:5]}"

    def run(self) -> None:
        last = dict.fromkeys(self._keys, 0)
        while not self._ended.wait(PAUSE_SECONDS):
            for key in self._keys:
                try:
                    row = self.view.get(key)
                except RetryLater:
                    self.refusals += 1
                    continue
                self.answers += 1
                number = row["last"] if row else 0
                if number < last[key]:
                    self._wrong.append(f"{key}: {number} after {last[key]}")
                last[key] = number

    def end(self) -> None:
        self._ended.set()
        self.join()

    def shows_all(self) -> bool:
        """Return whether the view has all rows, each with all events of its key."""
        try:
            rows = {key: row["last"] for key, row in self.view.iterate()}
        except RetryLater:
            return False
        return rows == {key: expected_total(key) for key in self._keys}

    def __str__(self) -> str:
        return f"the view answered {self.answers} times and refused {self.refusals}"

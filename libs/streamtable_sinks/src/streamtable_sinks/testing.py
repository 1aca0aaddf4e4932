"""The conformance suite of targets: derive a class from `TargetSuite`, and pytest runs its tests on your target."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pytest

from streamtable import Avro, Codec, String
from streamtable.errors import Migrated, Rejected
from streamtable_sinks.target import SinkChange, SinkPartition, SinkSource, SinkTarget

_FIELDS = [{"name": "number", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
VALUE: Codec[Any] = Avro({"type": "record", "name": "Row", "fields": _FIELDS})
"""The values of the suite: records with a number, and a text that may be null."""


def changed(*rows: tuple[str, int | None], first: int = 0) -> list[SinkChange]:
    """Return changes of these keys, with these numbers; None deletes. Their offsets begin at `first`."""
    values = [None if number is None else {"number": number, "text": f"text {number}"} for _, number in rows]
    each = enumerate(zip(rows, values, strict=True), first)
    return [SinkChange(key, value, offset, 1_700_000_000_000) for offset, ((key, _), value) in each]


def begun(target: SinkTarget, place: SinkPartition) -> tuple[SinkTarget, int]:
    """Take a partition that has no position, and set it to 0. Returns the target, and the epoch."""
    epoch = target.take(place, "a").epoch
    target.write(place, epoch, None, 0, ())
    return target, epoch


class TargetSuite(ABC):
    """The tests that each target passes. Deriving classes are named `Test...`, and say how to make the target and read it.

    Attributes:
        keyed: Whether the target keeps the last change of each key. Otherwise it appends.
        atomic: Whether a batch is applied whole or not at all. Otherwise the target is idempotent.
    """

    keyed = False
    atomic = True

    @abstractmethod
    def client(self) -> SinkTarget:
        """Return a new client of the same target, as another process has. Not opened; the suite closes it."""

    @abstractmethod
    def numbers(self) -> Sequence[tuple[str, int]]:
        """Return the key and the number of all rows of the target: of one that appends in the order of writing."""

    def bad(self) -> SinkChange | None:
        """Return a change at offset 1 that the target refuses; None if it takes everything."""
        return None

    @pytest.fixture
    def clients(self) -> Any:
        """Makes opened clients, and closes them."""
        made: list[SinkTarget] = []

        def client() -> SinkTarget:
            target = self.client()
            made.append(target)
            target.open(SinkSource("suite", "rows", self.keyed, String(), VALUE))
            return target

        yield client
        for each in made:
            each.close()
            each.close()

    @pytest.fixture
    def place(self) -> SinkPartition:
        """A partition that no other test uses."""
        return SinkPartition(f"suite-{uuid.uuid4().hex[:8]}", "rows", "id-1", 0)

    def test_a_new_partition_has_no_position_and_the_first_write_sets_it(
        self, clients: Any, place: SinkPartition
    ) -> None:
        target = clients()
        taken = target.take(place, "first")
        assert taken.position is None
        assert taken.owner == ""
        target.write(place, taken.epoch, None, 5, ())
        again = clients().take(place, "second")
        assert (again.position, again.topic_id, again.owner) == (5, "id-1", "first")
        assert again.epoch > taken.epoch

    def test_a_batch_applies_its_changes_and_moves_the_position(
        self, clients: Any, place: SinkPartition
    ) -> None:
        target, epoch = begun(clients(), place)
        target.write(place, epoch, 0, 2, changed(("a", 1), ("b", 2)))
        target.write(place, epoch, 2, 4, changed(("a", 3), ("c", 4), first=2))
        expected = [("a", 3), ("b", 2), ("c", 4)] if self.keyed else [("a", 1), ("b", 2), ("a", 3), ("c", 4)]
        assert list(self.numbers()) == expected
        assert clients().take(place, "b").position == 4  # noqa: PLR2004 - the end of the second

    def test_a_batch_at_another_position_is_refused_as_a_whole(
        self, clients: Any, place: SinkPartition
    ) -> None:
        target, epoch = begun(clients(), place)
        target.write(place, epoch, 0, 1, changed(("a", 1)))
        # The same again, as after an answer that was lost, and others.
        for start, end in ((0, 1), (0, 2), (2, 3)):
            with pytest.raises(Migrated):
                target.write(place, epoch, start, end, changed(("a", 9), ("z", 9)))
        assert list(self.numbers()) == [("a", 1)]
        assert clients().take(place, "b").position == 1

    def test_a_former_owner_writes_nothing(self, clients: Any, place: SinkPartition) -> None:
        zombie, owner = clients(), clients()
        old = zombie.take(place, "zombie").epoch
        zombie.write(place, old, None, 0, ())
        new = owner.take(place, "owner").epoch
        for start in (0, None):
            with pytest.raises(Migrated):
                zombie.write(place, old, start, 1, changed(("a", 9)))
        owner.write(place, new, 0, 1, changed(("a", 1)))
        with pytest.raises(Migrated):
            zombie.write(place, old, 1, 2, changed(("b", 9)))
        assert list(self.numbers()) == [("a", 1)]

    def test_an_operator_sets_the_position_and_the_topic(self, clients: Any, place: SinkPartition) -> None:
        target = clients()
        target.write(place, target.take(place, "a").epoch, None, 7, ())
        other = place._replace(topic_id="id-2")
        taken = target.take(other, "a")
        assert (taken.position, taken.topic_id) == (7, "id-1")
        target.write(other, taken.epoch, None, 3, ())
        again = target.take(other, "a")
        assert (again.position, again.topic_id) == (3, "id-2")

    def test_partitions_topics_and_sinks_have_positions_of_their_own(
        self, clients: Any, place: SinkPartition
    ) -> None:
        target = clients()
        others = [
            place._replace(partition=1),
            place._replace(topic="others"),
            place._replace(sink=place.sink + "-b"),
        ]
        for at, each in enumerate((place, *others)):
            target.write(each, target.take(each, "a").epoch, None, at, ())
        assert [target.take(each, "a").position for each in (place, *others)] == [0, 1, 2, 3]

    def test_null_and_odd_texts_come_back(self, clients: Any, place: SinkPartition) -> None:
        target, epoch = begun(clients(), place)
        keys = ["", "\\N", "tab\there", "line\nbreak", 'quote"', "ü", "\\.", "a,b", "NULL"]
        changes = [SinkChange(key, {"number": at, "text": None}, at, 0) for at, key in enumerate(keys)]
        target.write(place, epoch, 0, len(keys), changes)
        assert sorted(self.numbers()) == sorted((key, at) for at, key in enumerate(keys))

    def test_deletions_delete_the_row_of_their_key(self, clients: Any, place: SinkPartition) -> None:
        if not self.keyed:
            pytest.skip("it appends")
        target, epoch = begun(clients(), place)
        target.write(place, epoch, 0, 3, changed(("gone", None), ("a", 1), ("b", 2)))
        target.write(place, epoch, 3, 5, changed(("b", None), ("c", 3), first=3))
        target.write(place, epoch, 5, 6, changed(("a", None), first=5))
        assert list(self.numbers()) == [("c", 3)]

    def test_a_change_that_does_not_fit_leaves_everything_as_it_was(
        self, clients: Any, place: SinkPartition
    ) -> None:
        bad = self.bad()
        if bad is None:
            pytest.skip("it takes everything")
        target, epoch = begun(clients(), place)
        (good,) = changed(("a", 1))
        with pytest.raises(Rejected) as refused:
            target.write(place, epoch, 0, 2, [good, bad])
        assert refused.value.offset in {None, bad.offset}
        assert list(self.numbers()) == [] or not self.atomic
        target.write(place, epoch, 0, 1, [good])
        assert list(self.numbers()) == [("a", 1)]

    def test_a_batch_of_ten_thousand_is_one_call(self, clients: Any, place: SinkPartition) -> None:
        target, epoch = begun(clients(), place)
        target.write(place, epoch, 0, 10_000, changed(*((f"{at:05}", at) for at in range(10_000))))
        assert list(self.numbers()) == [(f"{at:05}", at) for at in range(10_000)]

"""A sequence whose values are decoded when they are read."""

import pytest

from streamtable.codec.lazy import Lazy


class Made:
    times = 0

    def __call__(self) -> list[int]:
        self.times += 1
        return [1, 2, 3]


def test_its_length_is_known_and_it_can_be_passed_around_without_being_made() -> None:
    make = Made()
    values = Lazy(3, make)
    assert len((values, values)[0]) == 3
    assert values
    assert make.times == 0


def test_it_is_made_once_and_is_then_a_sequence_like_others() -> None:
    make = Made()
    values = Lazy(3, make)
    assert values[0] == 1
    assert values[-1] == 3
    assert values[1:] == [2, 3]
    assert list(values) == [1, 2, 3]
    assert 2 in values
    assert values == [1, 2, 3]
    assert values == Lazy(3, Made())
    assert values != [1, 2]
    assert repr(values) == "[1, 2, 3]"
    with pytest.raises(IndexError):
        values[3]
    assert make.times == 1


def test_values_that_could_not_be_made_can_be_asked_for_again() -> None:
    short_of_memory = [True]

    def make() -> list[int]:
        if short_of_memory.pop():
            short_of_memory.append(False)
            raise MemoryError
        return [1]

    values = Lazy(1, make)
    with pytest.raises(MemoryError):
        values[0]
    assert values == [1]

import pytest

from tweet_reach.domain.sketch import Sketch


def sketch_of(first: int, last: int) -> bytes:
    sketch = Sketch()
    for n in range(first, last):
        sketch.add(f"user-{n}")
    return sketch.to_bytes()


@pytest.mark.parametrize("size", [0, 1, 16, 100, 300])
def test_small_sets_are_counted_exactly(size: int) -> None:
    assert Sketch(sketch_of(0, size)).estimate == pytest.approx(size, abs=0.01)


def test_large_sets_are_counted_within_a_few_percent_in_4_kb() -> None:
    data = sketch_of(0, 200_000)
    assert len(data) < 4200
    assert Sketch(data).estimate == pytest.approx(200_000, rel=0.05)


def test_a_sketch_goes_on_from_its_bytes() -> None:
    sketch = Sketch(sketch_of(0, 50))
    sketch.add("user-7")
    sketch.add("somebody")
    assert sketch.estimate == pytest.approx(51, abs=0.01)


def test_the_bytes_do_not_depend_on_how_often_they_were_read() -> None:
    for size in (5, 60, 400, 5000):
        data = sketch_of(0, size)
        assert Sketch(data).to_bytes() == data

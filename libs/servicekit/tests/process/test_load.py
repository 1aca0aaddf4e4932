from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice

import pytest

from servicekit.process.load import LoadOptions, LoadReport, id_choice, key_choice, send
from streamtable.base.types import Ack
from streamtable.errors import RetryLater


class MemoryEmitter:
    """Acknowledges records, except that each tenth fails later and each hundredth is rejected at once."""

    def __init__(self) -> None:
        self.users: list[str] = []

    def emit(self, key: str, value: int) -> Future[Ack]:
        self.users.append(key)
        if len(self.users) % 100 == 0:
            raise RetryLater("the queue is full")
        future: Future[Ack] = Future()
        if len(self.users) % 10 == 0:
            future.set_exception(RetryLater("not acknowledged in time"))
        else:
            future.set_result(Ack("user-clicks", 0, len(self.users)))
        return future

    def close(self, timeout: float) -> None: ...


def records() -> Iterator[tuple[str, int]]:
    n = 0
    while True:
        n += 1
        yield f"user-{n}", n


def never(seconds: float) -> bool:
    return False


def nothing(sent: int) -> None:
    return


def test_a_load_sends_its_number_of_records() -> None:
    emitter = MemoryEmitter()
    shown: list[int] = []
    report = send(LoadOptions(rate=0, count=2500), records(), emitter.emit, never, shown.append)
    assert report.sent == 2500
    assert emitter.users == [f"user-{n}" for n in range(1, 2501)]
    assert shown[-1] == 2500


def test_the_report_has_the_rate_and_the_errors() -> None:
    report = send(LoadOptions(rate=0, count=1000), records(), MemoryEmitter().emit, never, nothing)
    assert report.acknowledged == 900
    assert report.errors == {"RetryLater": 100}
    assert report.text(2.0, "clicks") == (
        "sent 1000, acknowledged 900 in 2.0 s: 450 clicks/s; errors: 100 RetryLater"
    )
    assert "errors: none" in LoadReport().text(0.0, "clicks")


def test_a_load_ends_after_its_time() -> None:
    report = send(LoadOptions(rate=1000, seconds=0.2), records(), MemoryEmitter().emit, never, nothing)
    assert 1 <= report.sent <= 202


def test_a_load_ends_when_it_is_stopped() -> None:
    emitter = MemoryEmitter()
    send(LoadOptions(rate=0), records(), emitter.emit, lambda seconds: len(emitter.users) > 500, nothing)
    assert 500 < len(emitter.users) <= 1500


def test_the_number_of_records_follows_from_the_options_or_is_not_known() -> None:
    assert LoadOptions(count=7).total == 7
    assert LoadOptions(rate=100, seconds=2.5).total == 250
    assert LoadOptions(rate=0, seconds=2.5).total == LoadOptions().total == 0


def test_the_same_seed_gives_the_same_ids() -> None:
    def made(seed: int) -> set[str]:
        return {str(each) for each in islice(iter(id_choice(seed), None), 50)}

    assert made(1) == made(1)
    assert len(made(1)) == 50
    assert made(1).isdisjoint(made(2))


def test_a_load_without_skew_is_uniform() -> None:
    choose = key_choice(10, 0.0, seed=1)
    chosen = Counter(choose() for _ in range(20_000))
    assert set(chosen) == {f"user-{n}" for n in range(1, 11)}
    assert all(1700 < count < 2300 for count in chosen.values())


def test_a_skewed_load_follows_zipfs_law() -> None:
    choose = key_choice(100, 1.0, seed=1)
    chosen = Counter(choose() for _ in range(50_000))
    assert chosen["user-1"] / chosen["user-2"] == pytest.approx(2, rel=0.1)
    assert chosen["user-1"] / chosen["user-10"] == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("skew", [0.0, 1.2])
def test_the_same_seed_gives_the_same_load(skew: float) -> None:
    one, same, other = (key_choice(1000, skew, seed) for seed in (7, 7, 8))
    chosen = [one() for _ in range(50)]
    assert chosen == [same() for _ in range(50)]
    assert chosen != [other() for _ in range(50)]

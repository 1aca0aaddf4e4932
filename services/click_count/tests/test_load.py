from concurrent.futures import Future
from itertools import islice

from click_count.load import Load, clicks, send
from contracts.records import UserClick
from streamtable.errors import RetryLater
from streamtable.types import Ack


class MemoryEmitter:
    """Acknowledges; each tenth click fails later, each hundredth is refused at once."""

    def __init__(self) -> None:
        self.users: list[str] = []

    def emit(self, key: str, value: UserClick) -> Future[Ack]:
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


def never(seconds: float) -> bool:
    return False


def nothing(sent: int) -> None:
    return


def test_a_load_sends_as_many_clicks_as_it_was_told() -> None:
    emitter = MemoryEmitter()
    shown: list[int] = []
    report = send(Load(rate=0, count=2500, keys=7), emitter, never, shown.append)
    assert report.sent == len(emitter.users) == 2500
    assert set(emitter.users) == {f"user-{n}" for n in range(1, 8)}
    assert shown[-1] == 2500


def test_the_report_tells_the_rate_and_the_errors() -> None:
    report = send(Load(rate=0, count=1000), MemoryEmitter(), never, nothing)
    assert report.acknowledged == 900
    assert report.errors == {"RetryLater": 100}
    assert report.text(2.0) == ("sent 1000, acknowledged 900 in 2.0 s: 450 clicks/s; errors: 100 RetryLater")


def test_a_load_ends_after_its_time() -> None:
    report = send(Load(rate=1000, seconds=0.2), MemoryEmitter(), never, nothing)
    assert 1 <= report.sent <= 202


def test_a_load_ends_when_it_is_stopped() -> None:
    emitter = MemoryEmitter()
    send(Load(rate=0), emitter, lambda seconds: len(emitter.users) > 500, nothing)
    assert 500 < len(emitter.users) <= 1500


def test_everything_but_the_time_follows_from_the_seed() -> None:
    def made(seed: int) -> list[UserClick]:
        return list(islice(clicks(Load(seed=seed, skew=1.0), lambda: 5), 20))

    assert made(1) == made(1)
    assert {click["id"] for click in made(1)}.isdisjoint(click["id"] for click in made(2))
    assert all(click["at"] == 5 for click in made(1))

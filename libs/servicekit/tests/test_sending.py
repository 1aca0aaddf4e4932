from concurrent.futures import Future

import pytest

from servicekit.problems import Problem
from servicekit.sending import Accepted, Outgoing, send_all
from streamtable.errors import RetryLater, Unencodable
from streamtable.types import Ack

IDS = [f"0190f6a2-5a7c-7c3e-8f3e-00000000000{n}" for n in range(3)]


class MemoryEmitter:
    """Acknowledges all records but `silent` (never), `late` (with an error), `full` (refused) and `bad`."""

    def __init__(self) -> None:
        self.records: list[str] = []

    def emit(self, key: str, value: str) -> Future[Ack]:
        future: Future[Ack] = Future()
        if value == "full":
            raise RetryLater("the queue is full")
        if value == "bad":
            future.set_exception(Unencodable("too large"))
        elif value == "late":
            future.set_exception(RetryLater("not acknowledged in time"))
        elif value != "silent":
            future.set_result(Ack("clicks", 3, len(self.records)))
            self.records.append(value)
        return future

    def close(self, timeout: float) -> None: ...


def outgoing(*records: str) -> list[Outgoing[str]]:
    return [Outgoing(identity, "alice", record) for identity, record in zip(IDS, records, strict=False)]


def test_what_was_acknowledged_is_told_with_place_and_token_in_order() -> None:
    accepted = send_all(MemoryEmitter(), outgoing("a", "b"), 1)
    assert accepted == [
        {"id": IDS[0], "partition": 3, "offset": 0, "token": "clicks:3:0"},
        {"id": IDS[1], "partition": 3, "offset": 1, "token": "clicks:3:1"},
    ]
    assert Accepted.model_validate(accepted[0]).offset == 0


@pytest.mark.parametrize("record", ["silent", "late", "full"])
def test_what_was_not_acknowledged_is_told_with_what_was(record: str) -> None:
    with pytest.raises(Problem) as caught:
        send_all(MemoryEmitter(), outgoing("a", record), 0.05)
    assert caught.value.status == 503
    assert [each["id"] for each in caught.value.members["accepted"]] == [IDS[0]]
    assert caught.value.members["unknown"] == [IDS[1]]


def test_nothing_is_sent_after_a_full_queue() -> None:
    emitter = MemoryEmitter()
    with pytest.raises(Problem) as caught:
        send_all(emitter, outgoing("full", "b"), 0.05)
    assert caught.value.members["unknown"] == IDS[:2]
    assert emitter.records == []


def test_a_failure_that_will_not_pass_is_raised() -> None:
    with pytest.raises(Unencodable):
        send_all(MemoryEmitter(), outgoing("bad"), 0.05)

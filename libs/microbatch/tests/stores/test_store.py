"""Retries of calls: only the failed part of a batch, until the deadline."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from microbatch.stores.port import LARGEST_NUMBER, Found, Row, VersionedFields, WriteResult
from microbatch.stores.store import RemoteStore
from streamtable.errors import ConfigurationError, Migrated, RetryKeys, RetryLater
from streamtable_testing.clock import VirtualClock


class Scripted:
    """A driver that returns the given answers, one for each attempt, and records the requests."""

    def __init__(self, *answers: Found | WriteResult | Exception) -> None:
        self.answers: Iterator[Found | WriteResult | Exception] = iter(answers)
        self.asked: list[tuple[list[bytes], float]] = []
        self.closed = False

    def _answer(self, keys: Sequence[bytes], timeout: float) -> Found | WriteResult:
        self.asked.append((list(keys), timeout))
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        answer = self._answer(keys, timeout)
        assert isinstance(answer, Found)
        return answer

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        answer = self._answer(list(rows), timeout)
        assert isinstance(answer, WriteResult)
        return answer

    def flush(self, timeout: float) -> None:
        self._answer([], timeout)

    def close(self) -> None:
        self.closed = True


def store_of(driver: Scripted, **options: float) -> RemoteStore:
    return RemoteStore(driver, clock=VirtualClock(), **options)


AB: dict[bytes, bytes | None] = {b"a": b"1", b"b": b"2"}


def test_only_the_keys_that_failed_are_written_again() -> None:
    driver = Scripted(WriteResult({b"b": "busy"}), WriteResult())
    store_of(driver).put_many(AB, 1)
    assert [keys for keys, _ in driver.asked] == [[b"a", b"b"], [b"b"]]


def test_only_the_keys_that_failed_are_read_again() -> None:
    driver = Scripted(Found({b"a": Row(1, b"1")}, {b"b": "busy"}), Found({b"b": Row(2, b"2")}))
    assert store_of(driver).get_many(AB) == {b"a": Row(1, b"1"), b"b": Row(2, b"2")}
    assert [keys for keys, _ in driver.asked] == [[b"a", b"b"], [b"b"]]


def test_without_any_answer_all_keys_are_written_again() -> None:
    driver = Scripted(RetryLater("away"), WriteResult())
    store_of(driver).put_many(AB, 1)
    assert [keys for keys, _ in driver.asked] == [[b"a", b"b"], [b"a", b"b"]]


def test_the_error_at_the_deadline_names_the_keys_the_time_and_the_last_reason() -> None:
    driver = Scripted(WriteResult({b"b": "first"}), *[RetryLater("away")] * 100)
    with pytest.raises(
        RetryKeys, match="writing 1 of 2 rows failed for 5 s, b'b' among them: away"
    ) as failed:
        store_of(driver, deadline=5).put_many(AB, 1)
    assert failed.value.keys == (b"b",)


def test_pauses_grow_and_no_attempt_exceeds_the_remaining_time() -> None:
    driver = Scripted(*[RetryLater("away")] * 100)
    with pytest.raises(RetryKeys):
        store_of(driver, deadline=3, attempt=2).get(b"a")
    timeouts = [timeout for _, timeout in driver.asked]
    assert timeouts[0] == 2
    assert timeouts == sorted(timeouts, reverse=True)
    # 20, 40, 80, 160, 320, 640 and 1,000 ms fit into three seconds.
    assert len(timeouts) == 8
    assert timeouts[-1] == pytest.approx(3 - 2.26)


def test_a_rejected_row_ends_the_call_at_once() -> None:
    driver = Scripted(WriteResult({b"b": "busy"}, frozenset({b"a"})))
    with pytest.raises(Migrated, match="1 rows have a higher number than 7, b'a' among them"):
        store_of(driver).put_many(AB, 7)


def test_a_configuration_error_is_not_retried() -> None:
    driver = Scripted(ConfigurationError("no index"))
    with pytest.raises(ConfigurationError, match="no index"):
        store_of(driver).put_many(AB, 1)
    assert len(driver.asked) == 1


def test_an_empty_request_does_not_call_the_server() -> None:
    driver = Scripted()
    store = store_of(driver)
    assert store.get_many([]) == {}
    store.put_many({}, 1)
    store.delete_many([], 1)
    assert driver.asked == []


def test_a_repeated_key_is_requested_once() -> None:
    driver = Scripted(Found({}))
    store_of(driver).get_many([b"a", b"b", b"a"])
    assert driver.asked[0][0] == [b"a", b"b"]


def test_a_flush_is_retried_too() -> None:
    driver = Scripted(RetryLater("away"), WriteResult())
    store_of(driver).flush()
    assert len(driver.asked) == 2


class Searchable(Scripted):
    """Remembers what rows are to be found by."""

    def write_found_by(
        self,
        rows: Mapping[bytes, bytes | None],
        number: int | None,
        timeout: float,
        fields: Mapping[bytes, VersionedFields],
    ) -> WriteResult:
        self.fields = fields
        return self.write(rows, number, timeout)


def test_search_fields_are_passed_only_to_drivers_that_can_search() -> None:
    fields = {b"a": VersionedFields({"text": "new"}, None)}
    driver = Searchable(WriteResult({b"a": "busy"}), WriteResult())
    store_of(driver).put_many(AB, 1, fields)
    assert driver.fields == fields
    store_of(Scripted(WriteResult())).put_many(AB, 1, fields)


@pytest.mark.parametrize("number", [0, -1, LARGEST_NUMBER + 1])
def test_an_invalid_number_is_a_value_error(number: int) -> None:
    with pytest.raises(AssertionError):
        store_of(Scripted()).put_many(AB, number)


def test_the_driver_is_closed_with_the_store() -> None:
    driver = Scripted()
    store_of(driver).close()
    assert driver.closed

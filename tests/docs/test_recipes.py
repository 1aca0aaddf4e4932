"""The recipes: each program runs, is short, and gives the result that a reader would compute by hand."""

import re
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import App, Stream
from streamtable.flow import Windowed
from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/recipes.md").read_text()
SECTIONS = {
    int(number): text
    for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
START_MS = 472_223 * HOUR_MS
"""The full hour when the events of these tests begin; the Tester's clock begins two hours later."""


@pytest.fixture
def tester() -> Any:
    with Tester(now=START_MS / 1000 + 7200) as made:
        yield made


def text_of(number: int) -> str:
    (text,) = re.findall(r"^```python\n(.*?)^```", SECTIONS[number], re.DOTALL | re.MULTILINE)
    return str(text)


def recipe(number: int) -> dict[str, Any]:
    page: dict[str, Any] = {"__name__": "recipe"}
    exec(text_of(number), page)
    return page


def values(tester: Tester, stream: Stream[Any, Any]) -> list[tuple[Any, Any]]:
    return [(each.key, each.value) for each in tester.records(stream)]


def at(tester: Tester, stream: Stream[Any, Any], key: str, seconds: float, value: Any = "") -> None:
    """Emit a record with a timestamp so many seconds after `START_MS`."""
    tester.emit(stream, key, value, timestamp_ms=START_MS + int(seconds * 1000))


def test_there_are_twenty_one_recipes_of_at_most_forty_lines() -> None:
    assert sorted(SECTIONS) == list(range(1, 22))
    assert {number: lines for number in SECTIONS if (lines := len(text_of(number).splitlines())) > 40} == {}


def test_a_payment_that_is_sent_twice_counts_once(tester: Tester) -> None:
    page = recipe(1)
    tester.run(page["PROGRAM"])
    for id_, cents in (("a", 500), ("b", 300), ("a", 500)):
        tester.emit(page["PAYMENTS"], "ada", {"id": id_, "cents": cents})
    assert tester.table(page["PROGRAM"]) == {"ada": 800}


def test_orders_get_the_country_of_their_customer(tester: Tester) -> None:
    page = recipe(2)
    customers = page["CUSTOMERS"]
    writes: Stream[str, Any] = Stream(customers.name, customers.key, customers.value)
    tester.create(writes)
    tester.emit(writes, "ada", {"country": "at"})
    tester.run(page["PROGRAM"])
    tester.emit(page["ORDERS"], "ada", {"cents": 5})
    tester.emit(page["ORDERS"], "bob", {"cents": 6})
    assert values(tester, page["ENRICHED"]) == [
        ("ada", {"cents": 5, "country": "at"}),
        ("bob", {"cents": 6, "country": None}),
    ]


def test_a_minute_counts_records_up_to_ten_seconds_late_and_later_ones_are_set_aside(tester: Tester) -> None:
    page = recipe(3)
    tester.run(page["PROGRAM"])
    for second in (10, 65, 59, 71, 58):  # the last one after the first minute has closed, at 70
        at(tester, page["VIEWS"], "/home", second, {"at": START_MS + second * 1000})
    assert values(tester, page["MINUTES"]) == [(Windowed("/home", START_MS, START_MS + MINUTE_MS), 2)]
    assert [value["at"] - START_MS for _, value in values(tester, page["LATE"])] == [58_000]


def test_the_three_pages_with_most_views_of_an_hour(tester: Tester) -> None:
    page = recipe(4)
    tester.run(page["PROGRAM"])
    for name, views in {"/a": 2, "/b": 5, "/c": 1, "/d": 3}.items():
        for _ in range(views):
            at(tester, page["VIEWS"], name, 60, {"at": START_MS + MINUTE_MS})
    at(tester, page["VIEWS"], "/e", 61 * 60, {"at": START_MS + 61 * MINUTE_MS})
    assert tester.table(page["top"].table) == {
        START_MS: [{"page": "/b", "views": 5}, {"page": "/d", "views": 3}, {"page": "/a", "views": 2}]
    }


def test_a_payment_within_ten_minutes_is_joined_and_an_order_without_one_comes_out_alone(
    tester: Tester,
) -> None:
    page = recipe(5)
    tester.run(page["PROGRAM"])
    at(tester, page["ORDERS"], "o1", 0, {"item": "tea"})
    at(tester, page["ORDERS"], "o2", 0, {"item": "pot"})
    at(tester, page["PAYMENTS"], "o1", 600, {"cents": 300})
    at(tester, page["PAYMENTS"], "o2", 601, {"cents": 900})
    assert values(tester, page["PAID"]) == [("o1", {"item": "tea", "paid": 300})]
    at(tester, page["ORDERS"], "o3", 700, {"item": "cup"})
    at(tester, page["PAYMENTS"], "o4", 700, {"cents": 1})
    assert values(tester, page["PAID"])[1:] == [("o2", {"item": "pot", "paid": 0})]


def test_a_pause_of_more_than_half_an_hour_divides_visits(tester: Tester) -> None:
    page = recipe(6)
    tester.run(page["PROGRAM"])
    for minute in (0, 10, 40, 71):
        at(tester, page["CLICKS"], "ada", minute * 60, {})
    tester.advance(60 * 60)
    assert [
        (key.start_ms - START_MS, key.end_ms - START_MS, count)
        for key, count in values(tester, page["VISITS"])
    ] == [
        (0, 40 * MINUTE_MS, 3),
        (71 * MINUTE_MS, 71 * MINUTE_MS, 1),
    ]


def test_an_alert_comes_five_minutes_after_the_last_reading_and_once(tester: Tester) -> None:
    page = recipe(7)
    tester.run(page["PROGRAM"])
    tester.emit(page["READINGS"], "s1", {"room": "cellar"})
    tester.advance(4 * 60)
    tester.emit(page["READINGS"], "s1", {"room": "cellar"})
    tester.advance(4 * 60)
    assert values(tester, page["ALERTS"]) == []
    tester.advance(10 * 60)
    assert values(tester, page["ALERTS"]) == [("s1", "cellar: no reading for 5 minutes")]


def test_a_call_that_fails_twice_is_made_a_third_time_and_one_that_fails_on_is_a_dead_letter(
    tester: Tester,
) -> None:
    page = recipe(8)
    group, calls = page["PROGRAM"], page["LOCATE"]
    tester.run(group)
    tester.emit(page["ADDRESSES"], "ada", "mill lane")
    for _ in range(2):
        tester.calls(calls).fail(ConnectionError("busy"))
        tester.advance(60)
    tester.calls(calls).answer({"lat": 48})
    assert tester.table(group) == {"ada": {"lat": 48}}
    tester.emit(page["ADDRESSES"], "bob", "nowhere")
    for _ in range(3):
        assert tester.dead_letters(group) == []
        tester.calls(calls).fail(ConnectionError("busy"))
        tester.advance(60)
    assert len(tester.dead_letters(group)) == 1
    assert tester.table(group) == {"ada": {"lat": 48}}


def test_a_rejected_payment_is_set_aside_and_can_be_replayed(tester: Tester) -> None:
    page = recipe(9)
    tester.run(page["PROGRAM"])
    for cents in (500, -1, 200):
        tester.emit(page["PAYMENTS"], "ada", {"cents": cents})
    tester.emit_raw("payments", b"ada", b"{")
    assert tester.table(page["PROGRAM"]) == {"ada": 700}
    rejected, undecoded = tester.dead_letters(page["PROGRAM"])
    assert "a payment is positive" in rejected.reason
    assert undecoded.value == b"{"
    tester.retry(page["PROGRAM"], rejected)
    assert len(tester.dead_letters(page["PROGRAM"])) == 3


@pytest.mark.broker
def test_a_group_that_is_reset_to_a_date_counts_from_there_and_a_reader_waits_for_its_own_write(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = recipe(11)
    topics = Topics(broker.bootstrap_servers)
    date = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    since = int(date.timestamp() * 1000)
    group = page["PROGRAM"]

    def count(clicks: list[int]) -> int | None:
        with App(broker.bootstrap_servers, tmp_path) as app:
            app.create_topics(group, partitions=2)
            processor = app.processor(group)
            running = threading.Thread(target=processor.run)
            running.start()
            try:
                with app.emitter(page["CLICKS"]) as emitter:
                    for time in clicks:
                        emitter.emit_now("ada", {}, timestamp_ms=time)
                found: int | None = page["click"](app, "ada")
                return found
            finally:
                processor.stop()
                running.join(60)

    try:
        assert count([since - 2, since - 1, since, since + 1]) == 5
        (command,) = re.findall(r"^streamtable (group reset .*)$", SECTIONS[10], re.MULTILINE)
        command = command.replace("2026-03-01T00:00:00Z", date.isoformat())
        monkeypatch.setenv("STREAMTABLE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        done = subprocess.run(
            [sys.executable, "-m", "streamtable_cli", *command.split()],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert count([]) == 4  # two since the date, the click of the first run, and one more
    finally:
        topics.delete_all()


def test_old_and_new_orders_look_the_same_behind_the_renaming(tester: Tester) -> None:
    page = recipe(12)
    tester.run(page["PROGRAM"])
    tester.emit(page["ORDERS"], "o1", {"cust": "ada", "cents": 5})
    tester.emit(page["ORDERS"], "o2", {"customer": "bob", "cents": 6})
    assert values(tester, page["RENAMED"]) == [
        ("o1", {"customer": "ada", "cents": 5}),
        ("o2", {"customer": "bob", "cents": 6}),
    ]


def test_each_event_is_in_the_topic_of_its_type(tester: Tester) -> None:
    page = recipe(13)
    tester.run(page["PROGRAM"])
    for key, kind in (("1", "order"), ("2", "return"), ("3", "hello"), ("4", "order")):
        tester.emit(page["EVENTS"], key, {"type": kind})
    found = {name: [key for key, _ in values(tester, page[name])] for name in ("ORDERS", "RETURNS", "OTHERS")}
    assert found == {"ORDERS": ["1", "4"], "RETURNS": ["2"], "OTHERS": ["3"]}


def test_an_order_becomes_a_record_for_each_item(tester: Tester) -> None:
    page = recipe(14)
    tester.run(page["PROGRAM"])
    tester.emit(page["ORDERS"], "o1", {"items": {"tea": 2, "pot": 1}})
    assert values(tester, page["ITEMS"]) == [("tea", 2), ("pot", 1)]


def test_the_sixth_request_within_a_minute_is_rejected(tester: Tester) -> None:
    page = recipe(15)
    tester.run(page["PROGRAM"])
    for second in (0, 10, 20, 30, 40, 50, 60):
        at(tester, page["REQUESTS"], "ada", second, second)
    at(tester, page["REQUESTS"], "bob", 50, 50)
    assert [value for _, value in values(tester, page["ACCEPTED"])] == [0, 10, 20, 30, 40, 60, 50]
    assert values(tester, page["REJECTED"]) == [("ada", 50)]


def test_a_sale_is_in_the_database_once_although_a_crash_has_it_written_twice(
    tester: Tester, tmp_path: Path
) -> None:
    page = recipe(16)
    page["DATABASE"] = str(tmp_path / "sales.db")
    written: list[str] = []
    write = page["write"]

    def noted(place: str, shop: str, cents: int) -> None:
        written.append(place)
        write(place, shop, cents)

    page["write"] = noted
    tester.run(page["PROGRAM"])
    tester.crash(page["PROGRAM"], at="offsets-sent")
    tester.emit(page["SALES"], "mill", {"cents": 5})
    tester.start(page["PROGRAM"])
    tester.emit(page["SALES"], "mill", {"cents": 5})
    assert written == ["sales/0/0", "sales/0/0", "sales/0/1"]
    database = sqlite3.connect(page["DATABASE"])
    assert database.execute("SELECT count(*), sum(cents) FROM sales").fetchall() == [(2, 10)]
    database.close()


def test_the_test_of_the_page_passes() -> None:
    recipe(17)["test_a_crash_counts_nothing_twice"]()


def test_a_row_has_the_fields_of_both_topics(tester: Tester) -> None:
    page = recipe(18)
    tester.run(page["PROGRAM"])
    tester.emit(page["EMAILS"], "1", "ada@example.org")
    tester.emit(page["NAMES"], "1", "Ada")
    tester.emit(page["NAMES"], "2", "Bob")
    assert tester.table(page["PROGRAM"]) == {
        "1": {"email": "ada@example.org", "name": "Ada"},
        "2": {"name": "Bob"},
    }


def test_a_tombstone_deletes_the_row(tester: Tester) -> None:
    page = recipe(19)
    tester.run(page["PROGRAM"])
    tester.emit(page["PROFILES"], "ada", {"name": "Ada"})
    tester.emit(page["PROFILES"], "bob", {"name": "Bob"})
    tester.emit(page["PROFILES"], "ada", None)
    assert tester.table(page["PROGRAM"]) == {"bob": {"name": "Bob"}}


def test_a_shop_reports_its_sales_at_each_full_hour(tester: Tester) -> None:
    page = recipe(20)
    tester.run(page["PROGRAM"])
    tester.advance(10 * 60)
    tester.emit(page["SALES"], "mill", {"cents": 5})
    tester.advance(30 * 60)
    tester.emit(page["SALES"], "mill", {"cents": 7})
    tester.advance(30 * 60)
    tester.emit(page["SALES"], "mill", {"cents": 1})
    tester.advance(2 * 60 * 60)
    assert values(tester, page["REPORTS"]) == [("mill", 12), ("mill", 1), ("mill", 0)]


def test_a_user_counts_once_for_each_shop_however_often_they_buy(tester: Tester) -> None:
    page = recipe(21)
    tester.run(page["PROGRAM"])
    for shop, user in (("mill", "ada"), ("mill", "bob"), ("mill", "ada"), ("port", "ada"), ("mill", "ada")):
        tester.emit(page["SALES"], "any", {"shop": shop, "user": user})
    assert tester.table(page["users"].table) == {"mill": 2, "port": 1}

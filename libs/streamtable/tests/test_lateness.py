from streamtable.base.event_time import InputTime
from streamtable.base.lateness import SILENCE, advice, moved_by, text


def test_the_input_whose_stream_time_is_the_watermark_has_moved_it() -> None:
    times = {"orders": InputTime(500, 500), "payments": InputTime(900, 500), "idle": InputTime(100, 500)}
    assert moved_by(times) == "orders"
    assert "grace" in advice("orders")
    assert "idle_after" in advice("orders")


def test_a_watermark_that_no_input_has_reached_went_on_in_their_silence() -> None:
    assert moved_by({"orders": InputTime(500, 700), "payments": InputTime(600, 700)}) == SILENCE
    assert "idle_after" in advice(SILENCE)


def test_the_fact_has_the_share() -> None:
    assert text(81, 103, "f-n") == "81 of 103 records (79%) were late for f-n"

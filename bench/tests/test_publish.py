import pytest
from bench.figures import Figure
from bench.publish import MEASURED, goals, measured, pages, summary, table, ways, where, with_sections
from bench.results import read_published

MACHINE = {"cpu": "A", "cores": 2, "memory_gb": 8, "system": "Linux 6", "load": 0.0}
FACTS = {"time": "2026-01-01T00:00:00Z", "commit": "abc", "python": "3.11.2", "machine": MACHINE}


def lines(*figures: Figure) -> list[dict[str, object]]:
    return [{**figure.line(), **FACTS} for figure in figures]


def count(value: float) -> Figure:
    return Figure("count_exactly_once_1s", value, "records/s", cpu_seconds=1.0, records=1_000_000)


def test_the_pages_show_the_published_figures() -> None:
    for page, sections in pages(read_published()).items():
        text = page.read_text()
        assert with_sections(text, sections) == text, f"{page.name}: run `python -m bench publish`"


def test_the_command_for_capacity_computes_with_the_published_figures() -> None:
    assert MEASURED.read_text() == measured(read_published()), "run `python -m bench publish`"


def test_a_section_is_replaced_and_all_else_stays() -> None:
    text = "before\n<!-- bench: a -->\nold\nold\n<!-- end -->\nbetween <!-- bench: b -->\n<!-- end -->"
    assert with_sections(text, {"a": r"new \1", "b": "x"}) == (
        "before\n<!-- bench: a -->\nnew \\1\n<!-- end -->\nbetween <!-- bench: b -->\nx\n<!-- end -->"
    )


def test_a_page_without_the_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="no section 'a'"):
        with_sections("text", {"a": "new"})


def test_other_libraries_are_compared_within_the_run_that_measured_them() -> None:
    published = {
        "full": lines(count(900.0), Figure("ceiling", 1_000.0, "records/s")),
        "peers": lines(
            count(400.0), Figure("ceiling", 800.0, "records/s"), Figure("peer_kafka_streams", 100.0, "")
        ),
    }
    shown = {row.split(" | ")[0]: row.split(" | ")[1] for row in goals(published).splitlines()}
    assert shown["| Count exactly once, commits every second: records/s, of the ceiling"] == "0.9"
    assert shown["| Count exactly once, commits every second: records/s, of Kafka Streams"] == "4"


def test_what_spark_did_is_judged_by_the_run_on_spark() -> None:
    published = {
        "full": lines(Figure("spark_rebuild", 1.0, "s")),
        "spark": lines(Figure("spark_rebuild", 95.0, "s")),
    }
    (shown,) = (row for row in goals(published).splitlines() if "rebuilt by Spark" in row)
    assert "| 95 | ≤ 90 |" in shown
    assert "missed" in shown


def test_the_readme_compares_libraries_where_they_were_measured() -> None:
    peer = Figure(
        "peer_quix_streams_session_count", 2_000.0, "records/s", cpu_seconds=50.0, records=1_000_000
    )
    published = {
        "full": lines(Figure("view_get_p99", 6.0, "us"), count(1.0)),
        "peers": lines(count(400_000.0), Figure("session_count", 9_000.0, "records/s"), peer),
    }
    shown = summary(published).splitlines()
    assert "| count by key | 400,000 (1) |  |  |  |  |" in shown
    assert "| count of sessions by key | 9,000 |  |  | 2,000 (50) |  |" in shown
    assert shown[-1] == "- a view's get takes 6 µs (99 %)"
    assert len(shown) == 6
    assert "No figures" in summary({})


def test_the_page_names_the_machine_and_the_commit() -> None:
    shown = where({"full": lines(count(1.0))})
    assert "commit abc" in shown
    assert "2 cores (A)" in shown
    assert "published yet" in where({})


def test_without_lines_the_page_says_so() -> None:
    assert table(()) == "None are published yet."


def test_the_three_ways_stand_side_by_side_and_what_was_not_measured_is_empty() -> None:
    rate = Figure("microbatch_join", 50_000.0, "records/s", cpu_seconds=2.0, rss_mb=90.0, records=100_000)
    shown = ways({"full": lines(rate, Figure("memory_10k", 80.0, "MB"))}).splitlines()
    assert "| records/s of one process, exactly once |  |  | 50,000 |" in shown
    assert "| CPU a record: µs |  |  | 20 |" in shown
    assert "| resident memory at 10,000 records/s: MB |  | 80 |  |" in shown

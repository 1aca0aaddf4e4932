import json
from html.parser import HTMLParser

from streamtable_spark.jobs.report import Difference, PartitionReport, Report


def report(*keys: Difference) -> Report:
    partition = PartitionReport(0, {"clicks": 5}, 9, 2, 2, "a" * 16, "b" * 16, len(keys))
    return Report(
        "g", "click-count", "2026-03-01T00:00:00+00:00", "1", (), 5, 0, len(keys), 0, [partition], keys
    )


def test_what_stands_in_a_topic_is_text_on_the_page() -> None:
    page = report(
        Difference(0, "<script>alert(1)</script>", "extra", None, '{"value":"</td>"}', "00")
    ).as_html()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;/td&gt;" in page


def test_the_page_needs_nothing_from_elsewhere() -> None:
    links: list[str] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(name for name, _ in attrs if name in {"src", "href"})

    Links().feed(report().as_html())
    assert links == []
    assert "http" not in report().as_html()


def test_the_json_says_what_the_page_says() -> None:
    found = json.loads(report(Difference(0, "k", "missing", '{"value":1}', None, None)).as_json())
    assert found["differences"] == 1
    assert found["keys"][0]["difference"] == "missing"
    assert found["partitions"][0]["inputs"] == {"clicks": 5}

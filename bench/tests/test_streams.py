from dataclasses import replace
from pathlib import Path

from bench import streams
from bench.clicks import Clicks
from bench.figures import Figure
from bench.site import QUICK, Site

from localkafka.broker import Broker

TINY = replace(QUICK, stream=2_000, keys=1_000, tries=3)


def test_of_a_noisy_row_the_try_in_the_middle_counts() -> None:
    values = iter([0.27, 0.19, 0.22])
    found = streams.tried(lambda: [Figure("count", next(values), "records/s")], tries=3)
    assert [figure.value for figure in found] == [0.22]


def test_a_processor_can_be_tried_again_on_the_same_records(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY)
    clicks = Clicks(2_000, 100)
    found = streams.tried(lambda: streams.processor(site, "count", clicks), tries=3)
    assert [(figure.name, figure.error) for figure in found] == [("count", None)]
    assert found[0].value
    site.delete(clicks.topic, "rows-")


def test_the_loop_in_c_reads_every_record(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY)
    clicks = Clicks(2_000, 100)
    (found,) = streams.ceiling(site, "ceiling_c", clicks, "ceiling_c")
    assert (found.records, found.error) == (2_000, None)
    site.delete(clicks.topic)

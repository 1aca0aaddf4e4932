from dataclasses import replace
from pathlib import Path

from bench import windows
from bench.site import QUICK, Site

from localkafka.broker import Broker

TINY = replace(QUICK, stream=2_000, keys=500, tries=1)


def test_flows_with_state_are_measured_and_their_results_checked(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY)
    found = [
        *windows.repartitioned(site, "repartition_count"),
        *windows.final(site, "final_pause"),
    ]
    assert [(figure.name, figure.unit, figure.error) for figure in found] == [
        ("repartition_count", "records/s", None),
        ("final_pause", "ms", None),
    ]
    site.delete("clicks-", "g")

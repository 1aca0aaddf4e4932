"""A row about a link to the broker that is slower than a processor's output."""

from dataclasses import replace

from bench.clicks import Clicks
from bench.figures import Figure
from bench.job import Job
from bench.site import Site

from localkafka.broker import Broker
from localkafka.link import SlowLink

BYTES_PER_SECOND = 500_000.0
RECORDS = 20_000
"""The number of records, each with 4 KB of output: 80 MB, nearly three minutes on this link."""


def first_commit(site: Site, name: str) -> list[Figure]:
    """Measure the seconds from the first record to the first commit, with a separate broker behind the link."""
    with SlowLink() as link:
        broker = Broker(site.state("slow-link-kafka"), overrides=link.overrides, heap="256m")
        try:
            link.connect(broker.node.port)
            broker.start()
            behind = Site(link.bootstrap_servers, site.state("slow-link"), site.sizes)
            return [_measured(behind, link, name)]
        finally:
            broker.kill()
            broker.close()


def _measured(site: Site, link: SlowLink, name: str) -> Figure:
    clicks = Clicks(RECORDS)
    group = site.group(name, clicks.partitions)
    site.create([f"{group}-out"], clicks.partitions)
    job = Job(site.broker, site.clicks(clicks), group, clicks.records, str(site.state(group)), until="signal")
    link.bytes_per_second = BYTES_PER_SECOND
    with site.start("processor", replace(job, handler="amplify"), name) as program:
        first = program.mark("first")
        committed = site.wait_committed(program, replace(job, records=1))
        link.bytes_per_second = None
        program.stop()
    return Figure(name, committed.time - first.time, "s", rss_mb=program.rss_mb)

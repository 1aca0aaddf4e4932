"""Rows about calls of a second: their results, and what they cost the records of another input of their group."""

from bench.figures import Figure
from bench.job import Job
from bench.site import Site

AT_ONCE = 500
"""Calls at once, of a second: as many results a second are possible."""
ROWS = ("calls_none", "calls_beside", "calls_slow")


def calls(site: Site) -> list[Figure]:
    """Measure the records beside the calls without any, and with as many as possible, by turns; the medians of three turns."""
    turns = [(_turn(site, "none", 0), _turn(site, "slow", AT_ONCE)) for _ in range(site.sizes.tries)]
    without, with_ = (
        sorted(each, key=lambda figure: figure["p99"])[len(turns) // 2] for each in zip(*turns, strict=True)
    )
    return [
        Figure(
            "calls_none", without["p99"], "ms", cpu_seconds=without["cpu"], records=int(without["records"])
        ),
        Figure("calls_beside", with_["p99"], "ms", cpu_seconds=with_["cpu"], records=int(with_["records"])),
        Figure("calls_slow", with_["rate"] / AT_ONCE, "of the possible", rss_mb=with_["rss_mb"]),
    ]


def _turn(site: Site, name: str, rate: int) -> dict[str, float]:
    group = site.group(f"calls-{name}")
    job = Job(
        site.broker, f"{group}-requests", group, state_dir=str(site.state(group)), second=f"{group}-beside", rate=rate,
        clients=AT_ONCE, seconds=site.sizes.live_seconds,
    )  # fmt: skip
    site.create([job.topic, job.second, f"{group}-out"], job.partitions)
    site.create([f"{group}-calls", f"{group}-states"], job.partitions, {"cleanup.policy": "compact"})
    with site.start("calling", job, f"calls-{name}") as processor:
        with site.start("called", job, f"called-{name}") as program:
            found = program.result()
            program.end()
        began, ended = processor.mark("first"), processor.now()
        processor.stop()
    site.forget(group)
    return {**found, "cpu": ended.cpu - began.cpu, "rss_mb": processor.rss_mb or 0.0}

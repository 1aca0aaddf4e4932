"""`make bench`: measure the library beside a bare consumer and a hand-written loop, on its own real Kafka."""

import argparse
import os
import pstats
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import compare, plan, publish, results
from bench.machine import ROOT, facts
from bench.measure import RowFailed
from bench.nexmark import rows as nexmark
from bench.peers import captures, flows, rows, sinks, typed
from bench.run import measure, now, show
from bench.site import FULL, QUICK, Site, Sizes
from bench.spark import SparkRows
from rich.console import Console

from localkafka.broker import Broker
from localkafka.errors import LocalKafkaError

BUILD = ROOT / "build"
_WIDTH = 130  # if the output is not a terminal
say = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code is 1 if a row failed or became too slow."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="measure all rows")
    run.add_argument("--rows", default="", help="only these and their baselines, separated by commas")
    quick = verbs.add_parser(
        "quick", help="measure some rows with less, and compare them with earlier ratios"
    )
    quick.add_argument(
        "--warn", action="store_true", help="only warn about slower rows; failed rows still fail"
    )
    profile = verbs.add_parser("profile", help="measure one row with the profiler")
    profile.add_argument("row")
    others = verbs.add_parser(
        "peers", help="measure other libraries beside this one, if they can be built here"
    )
    others.add_argument("--quick", action="store_true", help="with less than half of the records")
    others.add_argument("--rows", default="", help="only these and their baselines, separated by commas")
    spark = verbs.add_parser("spark", help="measure the jobs on Spark, and publish their figures")
    spark.add_argument(
        "--quick", action="store_true", help="with a twentieth of the records; publish nothing"
    )
    queries = verbs.add_parser(
        "nexmark",
        help="measure the queries of Nexmark, some of them with Kafka Streams and Flink SQL too, and publish their figures",
    )
    queries.add_argument(
        "--quick", action="store_true", help="with less than half of the events; publish nothing"
    )
    verbs.add_parser("publish", help="write the last runs to figures.json and into the pages")
    baseline = verbs.add_parser(
        "baseline", help="use the median of the last quick runs as the baseline of later ones"
    )
    baseline.add_argument("--runs", type=int, default=3, help="the number of runs; default 3")
    verbs.add_parser(
        "all",
        help="measure everything, publish it, and use it as the baseline of quick runs: a quarter of an hour",
    )
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: end all started programs
    try:
        return _do(given)
    except KeyboardInterrupt:
        say.print("stopped")
        return 130
    except ValueError as error:
        parser.error(str(error))
    except LocalKafkaError as error:
        say.print(f"[red]no broker:[/] {error}")
        return 1


def _do(given: argparse.Namespace) -> int:  # noqa: PLR0911 - one for each verb
    match given.verb:
        case "run":
            return _run([row for row in given.rows.split(",") if row])
        case "quick":
            return _quick(warn=given.warn)
        case "profile":
            return _profile(given.row)
        case "peers":
            return _peers([row for row in given.rows.split(",") if row], quick=given.quick)
        case "spark":
            return _spark(quick=given.quick)
        case "nexmark":
            return _nexmark(quick=given.quick)
        case "publish":
            publish.publish()
        case "all":
            return _all()
        case _:
            _hold_to(given.runs)
    return 0


def _all() -> int:
    if _run([]) or _peers([]):
        say.print("[red]Nothing is published, as rows have failed.[/]")
        return 1
    for _ in range(compare.TRIES):
        _quick_ratios()
    # Last, so that all lines name the commit as it is.
    _hold_to(compare.TRIES)
    publish.publish()
    return 0


def _hold_to(runs: int) -> None:
    tries = [
        compare.ratios(results.figures_of(lines)) for lines in results.last_runs(results.LINES, "quick", runs)
    ]
    results.write_ratios(compare.medians(tries))
    say.print(f"Later quick runs are compared with the median of {len(tries)} runs.")


def _run(only: Sequence[str]) -> int:
    steps = plan.chosen(plan.steps(), quick=False, rows=only)
    with _site(FULL) as site:
        figures = measure(steps, site, _recorder("rows" if only else "full"), say)
    show(figures, say)
    return int(any(figure.error for figure in figures))


def _quick(*, warn: bool) -> int:
    before = results.read_ratios()
    if not before:
        say.print("There are no earlier ratios to compare with.")
    try:
        # A loss that is only a warning is not worth the minutes of a second run.
        held = compare.hold(_quick_ratios, before, time.monotonic, 1 if warn else compare.TRIES)
    except RowFailed as error:
        say.print(f"[red]{error}[/]")
        return 1
    return tell(held, warn=warn)


def tell(held: compare.Held, *, warn: bool) -> int:
    """Print gains and losses. Returns the exit code: 1 for a loss, 0 if losses are only warnings."""
    if held.gained:
        rows = ", ".join(held.gained)
        say.print(f"{rows}: much better than before. Make it the new baseline: python -m bench baseline")
    for sentence in held.lost:
        say.print(f"[red]slower:[/] {sentence} (median of {held.tries})")
    if held.lost and warn:
        say.rule("[bold red]WARNING: slower than before", style="red")
        say.print(
            "The run continues: other programs may have kept this machine busy. Measure again on an idle one:"
        )
        say.print("make bench QUICK=1")
    return int(bool(held.lost) and not warn)


def _quick_ratios() -> compare.Ratios:
    with _site(QUICK) as site:
        figures = measure(plan.chosen(plan.steps(), quick=True), site, _recorder("quick"), say)
    show(figures, say)
    if failed := [figure.name for figure in figures if figure.error]:
        raise RowFailed(f"failed: {', '.join(failed)}")
    return compare.ratios(figures)


def _profile(row: str) -> int:
    """Profile only this row, without its baseline."""
    step = next(step for step in plan.chosen(plan.steps(), quick=False, rows=[row]) if row in step.rows)
    BUILD.mkdir(exist_ok=True)
    began = time.time()
    with _site(FULL, BUILD) as site:
        figures = measure([step], site, _recorder("profile"), say)
    for found in sorted(BUILD.glob("profile-*.pstats")):
        if found.stat().st_mtime >= began:
            report = found.with_suffix(".txt")
            with report.open("w") as text:
                stats = pstats.Stats(str(found), stream=text)
                stats.sort_stats("tottime").print_stats(40)
                stats.sort_stats("cumulative").print_stats(40)
            say.print(f"The main thread's profile is in {report.relative_to(ROOT)}.")
    return int(any(figure.error for figure in figures))


def _peers(only: Sequence[str], *, quick: bool = False) -> int:
    chosen = []
    for peer in rows.peers():
        if lacking := rows.missing(peer):
            say.print(f"[yellow]{peer.name} is skipped: this machine has no {' and no '.join(lacking)}[/]")
        else:
            chosen.append(peer)
    baselines = {
        **plan.BASELINES,
        **{f"peer_{peer.name}": rows.BASELINE for peer in chosen},
        **{each.name: each.row for each in flows.BESIDE},
        **sinks.BASELINES,
        **typed.baselines(chosen),
        captures.ROW: captures.BASELINE,
    }
    kinds = (rows, flows, sinks, typed, captures)
    every = [step for each in kinds for step in each.steps(chosen)]
    steps = plan.chosen(every, quick=False, rows=only, baselines=baselines)
    kind = "peers_some" if only else "peers_quick" if quick else "peers"
    with _site(QUICK if quick else FULL) as site:
        figures = measure(steps, site, _recorder(kind), say)
    show(figures, say)
    return int(any(figure.error for figure in figures))


def _spark(*, quick: bool) -> int:
    with _site(QUICK if quick else FULL) as site:
        figures = measure(SparkRows().steps(), site, _recorder("spark_quick" if quick else "spark"), say)
    show(figures, say)
    if not quick:
        publish.publish(["spark"])  # failed rows are published as failed
    return int(any(figure.error for figure in figures))


def _nexmark(*, quick: bool) -> int:
    if lacking := nexmark.missing():
        say.print(
            f"[yellow]Kafka Streams and Flink are skipped: this machine has no {' and no '.join(lacking)}[/]"
        )
    steps = nexmark.Nexmark(beside=not lacking).steps()
    with _site(QUICK if quick else FULL) as site:
        figures = measure(steps, site, _recorder("nexmark_quick" if quick else "nexmark"), say)
    show(figures, say)
    if not quick:
        publish.publish(["nexmark"])  # failed rows are published as failed
    return int(any(figure.error for figure in figures))


def _recorder(kind: str) -> results.Recorder:
    return results.Recorder(results.LINES, kind, now(), facts())


@contextmanager
def _site(sizes: Sizes, profiles: Path | None = None) -> Iterator[Site]:
    """Yield a site with its own broker and a folder on the disk of the checkout: /tmp may be memory."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as folder:
        broker = Broker(Path(folder) / "kafka", heap="1g")
        try:
            broker.start()
            state = Path(folder) / "programs"
            state.mkdir()
            yield Site(broker.bootstrap_servers, state, sizes, profiles, broker.pid)
        finally:
            broker.kill()
            broker.close()


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))

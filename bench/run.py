"""A run: the rows in order, each recorded as soon as it is measured."""

import time
from collections.abc import Sequence

from bench.figures import Figure, by_name
from bench.goals import of_rows, read_goals
from bench.measure import RowFailed
from bench.plan import BASELINES, Step
from bench.results import Recorder
from bench.site import Site
from bench.tables import FIGURES_HEAD, GOALS_HEAD, figure_rows, goal_rows, number, terminal
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from localkafka.errors import LocalKafkaError
from streamtable.errors import StreamtableError

# The last two: a program has printed something other than the expected result.
FAILURES = (RowFailed, StreamtableError, KafkaException, LocalKafkaError, OSError, LookupError, ValueError)


def measure(steps: Sequence[Step], site: Site, recorder: Recorder, console: Console) -> list[Figure]:
    """Measure all rows; a failed row does not prevent the others."""
    done: dict[str, Figure] = {}
    with _progress(console) as progress:
        bar = progress.add_task("", total=len(steps))
        for step in steps:
            progress.update(bar, description=step.rows[0])
            for figure in _measured(step, site):
                compared = figure.compared(BASELINES.get(figure.name, figure.baseline), done)
                done[figure.name] = compared
                recorder.add(compared)
                if compared.error:
                    progress.console.print(f"[red]{figure.name} failed:[/] ", end="")
                    progress.console.print(compared.error, markup=False)
                elif not console.is_terminal:  # a terminal has a progress bar instead
                    progress.console.print(f"{figure.name}: {number(figure.value)} {figure.unit}")
            progress.advance(bar)
    return list(done.values())


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print the figures, and compare them with the goals."""
    console.print(terminal(FIGURES_HEAD, figure_rows(figures)))
    goals = of_rows(read_goals(), (figure.name for figure in figures))
    if goals:
        console.print(terminal(GOALS_HEAD, goal_rows(goals, by_name(figures))))


def now() -> str:
    """Return the time in UTC, in the format of lines."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _measured(step: Step, site: Site) -> list[Figure]:
    try:
        return step.measure(site)
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        return [Figure(row, None, "", error=reason) for row in step.rows]


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )

"""The cost of a run of the ETL: seconds by stage, and the CPU seconds of its processes by kind of thread."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.figures import Figure
from bench.tables import Rows, markdown, number

JOB = "spark_etl"
STAGES = {
    "start": "Python, Java, Spark's session; Kafka and the lake are checked",
    "bronze": "records are read from Kafka and written to bronze",
    "search": "records are counted by day, and repeated ids are searched for",
    "silver": "records are decoded, checked and written to silver",
    "marks": "rows of silver are counted, the batch is marked as finished, the next one is planned",
    "results": "results (gold) are computed and merged",
    "end": "Java and Python end",
}
KINDS = {
    "tasks": "Spark's tasks: reading, decoding, checking, searching, writing",
    "compilers": "Java's compilers",
    "collector": "Java's garbage collector",
    "rest": "planning, Delta's commits, Kafka's clients, Python",
}
ENDS_WITH = {
    "planned": "marks",
    "bronze written": "bronze",
    "repeats searched": "search",
    "silver written": "silver",
    "batch written": "marks",
    "batches read": "marks",
    "results written": "results",
}
"""The stage that ends with each step of the job; the first plan ends the start."""
ROWS = (*(f"{JOB}_stage_{stage}" for stage in STAGES), *(f"{JOB}_cpu_{kind}" for kind in KINDS))
_HEAD = ("stage", "seconds", "of the run", "CPU seconds")
_CPU_HEAD = ("CPU seconds of", "", "of all")


def figures(whole: Figure, started: float, steps: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the rows of the stages and of the kinds of threads.

    Args:
        whole: The whole run: its seconds, its CPU seconds, and its records.
        started: The start of its process, in seconds since 1970.
        steps: The steps that the job has printed, in order: `step`, `time`, `cpu`.
    """
    ended, all_cpu = started + (whole.value or 0), whole.cpu_seconds or 0.0
    seconds, spent = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
    at, cpu, kinds = started, 0.0, dict.fromkeys(KINDS, 0.0)
    for number_of_step, each in enumerate(steps):
        kinds = dict(each["cpu"])
        stage = ENDS_WITH[each["step"]] if number_of_step else "start"
        seconds[stage] += each["time"] - at
        spent[stage] += sum(kinds.values()) - cpu
        at, cpu = each["time"], sum(kinds.values())
    seconds["end"], spent["end"] = ended - at, max(0.0, all_cpu - cpu)
    kinds["rest"] += spent["end"]
    stages = [
        Figure(f"{JOB}_stage_{stage}", seconds[stage], "s", JOB, None, spent[stage], None, whole.records)
        for stage in STAGES
    ]
    return stages + [Figure(f"{JOB}_cpu_{kind}", kinds[kind], "CPU s") for kind in KINDS]


def table(found: Mapping[str, Figure]) -> str:
    """Return the two tables, from the figures of a run."""
    stages = {stage: found[f"{JOB}_stage_{stage}"] for stage in STAGES if f"{JOB}_stage_{stage}" in found}
    kinds = {kind: found[f"{JOB}_cpu_{kind}"] for kind in KINDS if f"{JOB}_cpu_{kind}" in found}
    whole, cpu = (sum(each.value or 0 for each in part.values()) for part in (stages, kinds))
    if not whole or not cpu:
        return "None are published yet: run `make bench-spark`."
    rows: Rows = [
        (f"{stage}: {STAGES[stage]}", number(each.value), _share(each, whole), number(each.cpu_seconds))
        for stage, each in stages.items()
    ]
    cpu_rows: Rows = [(KINDS[kind], number(each.value), _share(each, cpu)) for kind, each in kinds.items()]
    return f"{markdown(_HEAD, rows)}\n\n{markdown(_CPU_HEAD, cpu_rows)}"


def _share(part: Figure, whole: float) -> str:
    return f"{(part.value or 0) / whole:.0%}"

"""The results of the programs in Kafka Streams: from its TopologyTestDriver, or from the committed file.

After a change of the programs run `make interop-golden`, which is

    python -m tests.interop.flows.theirs
"""

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.interop.flows.programs import Program, random_program
from tests.interop.shared.programs import TOPOLOGY

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden.jsonl"
"""Random programs with their inputs and the answers of Kafka Streams, one a line."""
DIFFERENCES = HERE / "differences.jsonl"
"""The committed results of programs that show an intended difference."""
JOINS_GOLDEN = HERE / "joins.jsonl"
"""The first of joins."""
JOIN_DIFFERENCES = HERE / "join_differences.jsonl"
"""The second of joins."""
SEEDS = range(64)

Answer = list[list[list[Any]]]


def ask(programs: Sequence[Program]) -> list[Answer]:
    """Run programs in Kafka Streams. Returns for each, for each of its inputs, the records that it has led to."""
    run = subprocess.run(
        [TOPOLOGY.command[0], "-XX:TieredStopAtLevel=1", *TOPOLOGY.command[1:]],
        input="".join(f"{json.dumps(program)}\n" for program in programs),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4_000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


def read(path: Path) -> list[tuple[Program, Answer]]:
    """Return the committed programs with their answers."""
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(case["program"], case["answer"]) for case in cases]


def write(path: Path, programs: Iterable[Program]) -> None:
    """Ask Kafka Streams, and write its answers beside the programs."""
    asked = list(programs)
    lines = [
        json.dumps({"program": program, "answer": answer}, separators=(",", ":"))
        for program, answer in zip(asked, ask(asked), strict=True)
    ]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def main() -> None:
    """Ask for all answers again. Raises `SystemExit` where the Java program cannot be run."""
    if TOPOLOGY.unfit:
        raise SystemExit(TOPOLOGY.unfit)
    from tests.interop.flows import joins  # noqa: PLC0415 - it is read by the tests alone otherwise
    from tests.interop.flows.differences import JOINS, PROGRAMS  # noqa: PLC0415 - the same

    write(GOLDEN, map(random_program, SEEDS))
    write(DIFFERENCES, PROGRAMS)
    write(JOINS_GOLDEN, map(joins.random_join, joins.SEEDS))
    write(JOIN_DIFFERENCES, JOINS)


if __name__ == "__main__":
    main()

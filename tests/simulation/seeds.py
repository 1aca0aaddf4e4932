"""The seeds to run first: `python -m tests.simulation.seeds` finds the quickest seeds again and writes them to `seeds.toml`.

Run it when the engine or the simulation has changed so much that planted bugs are found late, because tests start at a
seed that no longer shows the bug and continue with the next ones.
"""

import argparse
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.simulation import bugs, join_bugs
from tests.simulation.run import Draw, Outcome, run_seed
from tests.simulation.shape import draw, draw_join
from tests.simulation.trace import CALL

from streamtable.base.failpoint import ALL_STEPS, BATCH_STEPS
from streamtable.observe import Metrics
from streamtable_testing.faults import CALLS, Fault

SEEDS = Path(__file__).with_name("seeds.toml")
_SELDOM = (
    "produce",
    "stable-ends",
)  # too rare to meet a kill in some schedules
HAZARDS = frozenset(
    {
        *(f"CRASH at {name}" for name in ALL_STEPS if name not in BATCH_STEPS),
        *(f"CRASH {call}" for call in CALLS if call not in _SELDOM),
        *(f"FAULT {fault.value}" for fault in Fault),
        *("assigned", "revoked", "lost", "freezes", "late arrives", "marker late", "reported again"),
        *("handler fails", "broker away", "is cut off", "is replaced", "is stopped", "disk damaged"),
        *("disk full", "sent again", "compaction", "retention", "time passes", "idle input"),
        *("stops Fenced", "stops StoreBroken", "stops HandlerFailed"),
    }
)
"""The hazards of a schedule, by their names in a trace."""


def hazards_of(outcome: Outcome) -> frozenset[str]:
    """Return the hazards that occurred in a schedule."""
    return HAZARDS & {_name(event.what, event.facts) for event in outcome.trace.events if event.what != CALL}


def _name(what: str, facts: tuple[Any, ...]) -> str:
    if what == "CRASH":
        return " ".join([what, *map(str, facts[1:])])
    if what == "FAULT":
        return f"FAULT {facts[1]}"
    if what == "stops":
        return f"stops {facts[0]}"
    return what


def read() -> Mapping[str, Any]:
    """Return the committed seeds: the list `telling`, and a seed for each bug: `planted` in the engine, others in `joins`."""
    return tomllib.loads(SEEDS.read_text())


def plants_of(module: ModuleType) -> set[str]:
    """Return the names of the bugs that a module can plant."""
    return {
        name
        for name, each in vars(module).items()
        if getattr(each, "__annotations__", {}).keys() == {"patch", "return"}
    }


def quickest(plant: bugs.Plant, first: int, seconds: float, drawn: Draw = draw) -> int | None:
    """Return the seed that finds a planted bug in the least CPU time, of those tried within this many seconds."""
    metrics = Metrics.register(CollectorRegistry())
    best: tuple[float, int] | None = None
    end = time.process_time() + seconds
    seed = first  # the present seed first, then from the beginning
    tried = 0
    while time.process_time() < end:
        began = time.process_time()
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            broken = run_seed(seed, metrics, drawn=drawn).broken
        took = time.process_time() - began
        sound = broken is not None and not run_seed(seed, metrics, drawn=drawn).broken
        if sound and (best is None or took < best[0]):
            best = took, seed
            if took < 0.3:
                break
        tried += 1
        seed = tried
    return None if best is None else best[1]


def telling(seeds: Iterable[int]) -> list[int]:
    """Return a small subset of the seeds: every hazard that strikes in any of them strikes in the subset too."""
    metrics = Metrics.register(CollectorRegistry())
    found: dict[int, tuple[float, frozenset[str]]] = {}
    for seed in seeds:
        began = time.process_time()
        hazards = hazards_of(run_seed(seed, metrics))
        found[seed] = time.process_time() - began, hazards
    left = set().union(*(hazards for _, hazards in found.values()))
    chosen: list[int] = []
    while left:
        seed = max(found, key=lambda seed: len(found[seed][1] & left) / (0.05 + found[seed][0]))
        chosen.append(seed)
        left -= found[seed][1]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.seeds", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU seconds for each bug")
    parser.add_argument(
        "--schedules", type=int, default=400, help="number of schedules to choose the telling seeds from"
    )
    given = parser.parse_args()
    before = read()
    lines = [line for line in SEEDS.read_text().splitlines() if line.startswith("#")]
    lines.append(f"telling = {telling(range(1, given.schedules))}")
    for section, module, drawn in (("planted", bugs, draw), ("joins", join_bugs, draw_join)):
        lines += ["", f"[{section}]"]
        for name, first in before[section].items():
            seed = quickest(getattr(module, name), first, given.seconds, drawn)
            print(f"{name}: {seed or 'not found'}, before {first}", flush=True)
            lines.append(f"{name} = {seed or first}")
    SEEDS.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()

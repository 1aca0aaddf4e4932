"""`python -m tests.simulation SEED` prints the whole trace of a schedule; without a seed, runs schedules for a while."""

import argparse
import sys
from itertools import count

from prometheus_client import CollectorRegistry
from tests.simulation.run import Totals, first_broken, run_seed
from tests.simulation.shape import draw, draw_join

from streamtable.observe import Metrics


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="seed of the schedule to print")
    parser.add_argument(
        "--calls", action="store_true", help="also print each request to the broker, and the engine's log"
    )
    parser.add_argument("--joins", action="store_true", help="run schedules of flows with joins")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration without a seed")
    parser.add_argument("--first", type=int, default=1, help="first seed without a seed")
    given = parser.parse_args()
    drawn = draw_join if given.joins else draw
    if given.seed is None:
        totals = Totals()
        broken = first_broken(count(given.first), given.seconds, totals, drawn)
        print(f"{totals}, from seed {given.first}")
        if broken is not None:
            print(broken.report())
        return int(broken is not None)
    outcome = run_seed(given.seed, Metrics.register(CollectorRegistry()), log=given.calls, drawn=drawn)
    print(outcome.shape, outcome.shape.join or "")
    for line in outcome.trace.lines(detail=given.calls):
        print(line)
    print(f"digest {outcome.trace.digest()}; {outcome.broken or 'nothing is broken'}")
    return int(outcome.broken is not None)


if __name__ == "__main__":
    sys.exit(main())

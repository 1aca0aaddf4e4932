"""All kinds of Kafka clients behind one faulty proxy: groups, a view, a lookup, a micro-batch.

The test itself sends its load and reads committed offsets through the broker's own address, unaffected.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.faults.arena import BROKER_SETTINGS, Arena, Load, wait_until
from tests.faults.batch_arena import BatchArena
from tests.faults.oracle import expected_total, parts
from tests.faults.reader import Reader
from tests.system.bench import Bench

from localkafka.broker import Broker
from localkafka.fixtures import PATIENT, Topics
from localkafka.wire import WireProxy
from localkafka.wirefaults import Api, Each
from streamtable import Context, Group, Input, Kafka, Long, Lookup, Persist, Stream

PROGRESS_SECONDS: Final = 60.0
"""The time limit, on an idle machine, until all input is handled after the last fault: timeouts of sessions and
transactions, and the backlog."""
STRIKE_SECONDS: Final = 30.0
BATCH: Final = 40  # records for the micro-batch per fault


class WireArena:
    """Two groups, a view, a group with lookups, and a micro-batch; it cleans up at exit.

    Args:
        folder: The folder for all files.
        seed: The seed of keys, events and faults.
        events: The approximate number of events of each group.

    Attributes:
        wire: The proxy between all of them and the broker.
        exact: A group that counts in order, exactly once, in two processes.
        loose: A group that counts at least once, in one process.
        batch: A micro-batch over Redis.
    """

    def __init__(self, folder: Path, seed: int, events: int) -> None:
        self.rng = random.Random(seed)
        self._folder, self._seed, self._events = folder, seed, events
        self._loads: Sequence[Load] = ()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _build(self) -> None:
        self.wire = self._stack.enter_context(WireProxy())
        self.broker = broker = Broker(
            self._folder / "broker",
            overrides=BROKER_SETTINGS | PATIENT,
            brief=True,
            listeners=[self.wire.listener],
        )
        self._stack.callback(broker.close)
        self._stack.callback(broker.kill)
        broker.start()
        self.exact = self._arena("exact", kind="order")
        self.loose = self._arena("loose", kind="handler", guarantee="at_least_once")
        (self._folder / "batch").mkdir()
        self.batch = self._stack.enter_context(
            BatchArena(
                broker.bootstrap_servers,
                self._folder / "batch",
                seed=self._seed,
                workers_at=self.wire.bootstrap_servers,
            )
        )
        for name in ("a", "b"):
            self.exact.start(name)
        self.loose.start("a")
        self.batch.start("a")
        self._look()
        self.reader = self._stack.enter_context(Reader.of(self.exact, self.wire.bootstrap_servers))

    def _arena(self, name: str, **settings: Any) -> Arena:
        folder = self._folder / name
        folder.mkdir()
        return self._stack.enter_context(
            Arena(
                self.broker.bootstrap_servers,
                folder,
                seed=self._seed,
                events=self._events,
                delete_topics=False,
                workers_at=self.wire.bootstrap_servers,
                **settings,
            )
        )

    def _look(self) -> None:
        """Start a group whose rows are the results of lookups in the exact group's table."""
        table, servers = self.exact.group.table, self.broker.bootstrap_servers

        def look(ctx: Context[str, int], _: str) -> None:
            found = ctx.lookup(table, ctx.key)
            ctx.set(found["last"] if found else 0)

        self.bench = Bench(servers, Topics(servers), self._folder / "looking")
        self._stack.callback(self.bench.close)
        self.asked: Stream[str, str] = self.bench.stream("asked")
        self.looking: Group[str, int] = Group(
            self.bench.name("g"), Input(self.asked, look), Lookup(table), Persist(Long())
        )
        self.bench.create(self.looking)
        self.bench.run(self.looking, log=Kafka(self.wire.bootstrap_servers))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"seed {self._seed}; faults: {self.struck()}")
        self.wire.plan = None
        self.wire.lighten()
        self._stack.close()

    # ---- faults ----------------------------------------------------------------------------------------------------

    def wait_begun(self) -> None:
        """Wait until all groups and the view are ready."""
        for arena in (self.exact, self.loose):
            arena.wait_at_work()
        self.batch.feed(BATCH)
        self.batch.wait_handled()
        self.reader.view.wait_ready(60)

    def strike(self, plans: Sequence[Each]) -> None:
        """Inject these faults one after the other, each while all groups have input."""
        shares = (parts(arena.events, len(plans)) for arena in (self.exact, self.loose))
        for plan, exact, loose in zip(plans, *shares, strict=True):
            self.wire.plan = plan
            self.exact.feed(exact)
            self.loose.feed(loose)
            self.batch.feed(BATCH)
            self._ask()
            wait_until(plan.done, f"{plan} strikes", STRIKE_SECONDS)

    def load(self, seconds: float) -> None:
        """Send all events over this many seconds, from threads."""
        self._loads = [arena.load(seconds) for arena in (self.exact, self.loose)]

    def dark(self, seconds: float) -> None:
        """Hold all data for this many seconds."""
        self.wire.darken()
        time.sleep(seconds)
        self.wire.lighten()

    def struck(self) -> str:
        """Return the number of faults by API and kind, as text."""
        named = Counter(
            {f"{Api(api).name} {fault.__name__}": n for (api, fault), n in self.wire.struck.items()}
        )
        return ", ".join(f"{number} {what}" for what, number in sorted(named.items()))

    def _ask(self) -> None:
        self.bench.send(self.asked.name, *((key, "?") for key in self.exact.keys))

    # ---- the end ---------------------------------------------------------------------------------------------------

    def settle(self) -> float:
        """End the faults, and wait until all events are handled. Returns the seconds that this took."""
        self.wire.plan = None
        began = time.monotonic()
        for load in self._loads:
            load.finish()
        for arena in (self.exact, self.loose):
            arena.wait_handled(PROGRESS_SECONDS)
        self.batch.wait_handled()
        return time.monotonic() - began

    def verify(self) -> str:
        """Check that nothing was lost or doubled, and that view and lookups equal the table."""
        totals = {key: expected_total(key) for key in self.exact.keys}

        def looked_up() -> bool:
            self._ask()
            self.bench.wait_handled(self.looking)
            return self.bench.table(self.looking) == totals

        wait_until(self.reader.shows_all, "the view shows all counts")
        wait_until(looked_up, "all lookups find the counts")
        for arena in (self.exact, self.loose):
            assert all(process.running for process in arena.processes.values()), "a process has ended"
            arena.finish()
        self.exact.verify()
        over = self.loose.verify(over_max=sys.maxsize).over
        assert self.batch.processes["a"].stop() == 0
        return f"{over} counted twice at least once; {self.reader}; {self.batch.verify()}; {self.struck()}"

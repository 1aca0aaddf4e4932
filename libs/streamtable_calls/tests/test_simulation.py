"""Random schedules of calls: failures, late results, crashes between any two steps, rebalances. And four planted faults.

The oracle: of each key, each request has one result or one dead letter, in the order of the requests; a call starts only
when all earlier ones of its key are handled and committed; and the result of an attempt that a process has lost counts nowhere.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from streamtable import Context, Group, Input, Json, OnError, Output, Stream, String
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable_calls import Call, Retry
from streamtable_calls.partition import Attempt, Outcome, PartitionCalls
from streamtable_calls.process import ByHand, ProcessCalls
from streamtable_testing import Tester

REQUESTS = Stream[str, Any]("requests", String(), Json())
RESULTS = Stream[str, Any]("results", String(), Json())
KEYS = ("a", "b", "c", "d", "e")
SEEDS = range(8)
MANY_SEEDS = range(8, 200)
_STEPS = 80
_ROUNDS_MAX = 400


class Wrong(Exception):
    """The oracle was contradicted."""


def handled(ctx: Context[str, Any], request: Any, result: Any) -> None:
    ctx.emit(RESULTS, ctx.key, [request, result])
    if request % 7 == 3:
        ctx.fail("a dead letter, which leaves no result")


def call_of(pending_max: int) -> Call[str, Any, Any, Any]:
    return Call(
        "f",
        str,
        request=Json(),
        response=Json(),
        then=handled,
        retry=Retry(attempts=1000),
        pending_max=pending_max,
        breaker=None,
    )


def good(request: int) -> bool:
    """Whether a request has a result. Of the others a handler fails: of their record, or of their result."""
    return request % 7 != 3 and request % 11 != 5


class Schedule:
    """One random schedule.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.tester = Tester(partitions=2, commit_on_request=self.rng.random() < 0.5)
        self.requests: dict[str, list[int]] = {key: [] for key in KEYS}
        self.number = 0
        self.call = call_of(self.rng.randint(1, 8))
        edge = Input(REQUESTS, self._make, on_error=OnError.DEAD_LETTER)
        self.group: Group[str, Any] = Group("simulated", edge, self.call, Output(RESULTS))
        self.lost: list[
            Attempt
        ] = []  # attempts that were seen running, to be answered when their process has lost them

    def _make(self, ctx: Context[str, Any], request: Any) -> None:
        ctx.call(self.call, request)
        if request % 11 == 5:
            ctx.fail("a dead letter, which leaves no call")

    def run(self) -> None:
        """Run it to its end. Raises `Wrong`."""
        try:
            self.tester.run(self.group, members=2)
            for _ in range(_STEPS):
                self._step()
                self._check_starts()
            self._heal()
            self._check_results()
        finally:
            self.tester.close()

    # ---- what happens --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        steps: dict[Callable[[], None], float] = {
            self._send: 4, self._answer: 6, self._fail: 2, self._late_result: 1, self._crash: 0.7, self._restart: 1,
            self._move: 0.5, self.tester.commit: 2, lambda: self.tester.advance(self.rng.random() * 3): 1,
        }  # fmt: skip
        self.rng.choices(list(steps), list(steps.values()))[0]()

    def _send(self) -> None:
        events = []
        for _ in range(self.rng.randint(1, 4)):
            key = self.rng.choice(KEYS)
            self.number += 1
            self.requests[key].append(self.number)
            events.append((key, self.number))
        self.tester.emit_many(REQUESTS, events)

    def _answer(self) -> None:
        calls = self.tester.calls(self.call)
        if pending := calls.pending:
            request = self.rng.choice(pending)
            self.lost += [attempt for _, attempt in calls._ready() if self.rng.random() < 0.2]
            calls.answer("good", request=request)

    def _fail(self) -> None:
        calls = self.tester.calls(self.call)
        if pending := calls.pending:
            calls.fail(ConnectionError("refused"), request=self.rng.choice(pending))

    def _late_result(self) -> None:
        late = [attempt for attempt in self.lost if attempt.calls.closed]
        if late:
            attempt = self.rng.choice(late)
            attempt.calls.arrive(Outcome(attempt.row_key, "stale"))
            self.tester.work()

    def _crash(self) -> None:
        number = self.rng.randrange(len(self.tester._of(self.group)))
        if self.tester._of(self.group)[number].processor is not None:
            at = self.rng.choice([None, *COMMIT_STEPS])
            self.tester.crash(self.group, at, member=number, times=1)

    def _restart(self) -> None:
        self.tester.start(self.group, disk=self.rng.random() < 0.5)

    def _move(self) -> None:
        living = [each for each in self.tester._of(self.group) if each.processor is not None]
        if len(living) == len(self.tester._of(self.group)) and len(living) > 1 and self.rng.random() < 0.5:
            self.tester.leave(self.group, self.rng.randrange(len(living)))
        elif len(living) < 4:
            self.tester.join(self.group)

    def _heal(self) -> None:
        for _ in range(_ROUNDS_MAX):
            for instance in self.tester._of(self.group):
                instance.kill_at = None
            self.tester.start(self.group)
            self.tester.commit()
            self._check_starts()
            calls = self.tester.calls(self.call)
            if not calls.pending:
                self.tester.advance(350)
                self.tester.commit()
                if not calls.pending and self._all_handled():
                    return
            if calls.pending:
                calls.answer("good")
        raise Wrong(f"requests have no result after {_ROUNDS_MAX} rounds")

    def _all_handled(self) -> bool:
        """Whether each request has a result or a dead letter. After a failed commit, each record takes a commit of its own."""
        done = len(self.tester.records(RESULTS)) + len(self.tester.dead_letters(self.group))
        return done >= self.number

    # ---- what must hold ------------------------------------------------------------------------------------------------

    def _done(self) -> dict[str, list[int]]:
        """The requests of each key that have their result or their dead letter, in the order of the former."""
        found: dict[str, list[int]] = {key: [] for key in KEYS}
        for record in self.tester.records(RESULTS):
            assert record.key is not None
            assert record.value is not None
            request, result = record.value
            if result != "good":
                raise Wrong(f"the result of a lost attempt of {request} was handled")
            found[record.key].append(request)
        return found

    def _check_starts(self) -> None:
        found = self._done()
        for _, attempt in self.tester.calls(self.call)._ready():
            key = attempt.key.decode()
            earlier = [n for n in self.requests[key] if n < attempt.request and good(n)]
            if found[key] != earlier:
                raise Wrong(f"{attempt.request} of {key} runs, and handled are {found[key]} of {earlier}")

    def _check_results(self) -> None:
        found = self._done()
        letters = len(self.tester.dead_letters(self.group))
        for key, requests in self.requests.items():
            expected = [n for n in requests if good(n)]
            if found[key] != expected:
                raise Wrong(f"the results of {key} are {found[key]}, and must be {expected}")
        bad = sum(not good(n) for requests in self.requests.values() for n in requests)
        if letters != bad:
            raise Wrong(f"there are {letters} dead letters, and must be {bad}")


@pytest.mark.parametrize("seed", SEEDS)
def test_each_request_has_one_result_in_the_order_of_its_key_whatever_happens(seed: int) -> None:
    Schedule(seed).run()


@pytest.mark.faults_long("many schedules")
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_the_same_holds_in_many_schedules(seed: int) -> None:
    Schedule(seed).run()


# ---- planted faults ----------------------------------------------------------------------------------------------------


def row_gone_before_its_commit(patch: pytest.MonkeyPatch) -> None:
    write = PartitionCalls._write

    def write_and_go_on(self: PartitionCalls, outcome: Outcome) -> int:
        written = write(self, outcome)
        if outcome.error is None:
            get = self._rows.raw.get
            with pytest.MonkeyPatch.context() as gone:
                gone.setattr(
                    self._rows.raw,
                    "get",
                    lambda key: None if key == outcome.row_key else get(key),
                    raising=False,
                )
                self._look(outcome.row_key)
        return written

    patch.setattr(PartitionCalls, "_write", write_and_go_on)


def order_broken_after_a_retry(patch: pytest.MonkeyPatch) -> None:
    write = PartitionCalls._write

    def write_and_overtake(self: PartitionCalls, outcome: Outcome) -> int:
        written = write(self, outcome)
        line = self._lines.get(self._line_of(outcome.row_key))
        if outcome.error is not None and line:
            line.rotate(-1)
            self._committed.append(line[0])
        return written

    patch.setattr(PartitionCalls, "_write", write_and_overtake)


def result_of_a_revoked_partition_handled(patch: pytest.MonkeyPatch) -> None:
    opened: dict[int, PartitionCalls] = {}
    open_, arrive = ProcessCalls.open, PartitionCalls.arrive

    def open_again(self: ProcessCalls, partition: int, rows: Any) -> PartitionCalls:
        opened[partition] = open_(self, partition, rows)
        return opened[partition]

    patch.setattr(ProcessCalls, "open", open_again)
    patch.setattr(PartitionCalls, "arrive", lambda self, outcome: arrive(opened[self._partition], outcome))


def pending_rows_lost_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    def forget(self: PartitionCalls) -> None:
        self._changed, self._written = [], []

    patch.setattr(PartitionCalls, "undone", forget)


@pytest.mark.parametrize(
    "plant",
    [
        row_gone_before_its_commit,
        order_broken_after_a_retry,
        result_of_a_revoked_partition_handled,
        pending_rows_lost_at_a_rewind,
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in [*SEEDS, *MANY_SEEDS]:
            try:
                Schedule(seed).run()
            except Wrong:
                return
    raise AssertionError("the fault was not found")


def test_a_tester_runs_calls_by_hand() -> None:
    with Tester() as tester:
        call = call_of(1)
        group: Group[str, Any] = Group("g", Input(REQUESTS, print), call)
        tester.run(group)
        assert isinstance(tester._of(group)[0].executor, ByHand)

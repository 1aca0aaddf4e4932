"""Random programs over streams and tables with their inputs, as JSON that the Java program and `ours` both understand.

A program has a `kind` ("stream" or "table", of its source `a`), `steps`, and `inputs`: [topic, key, value, time]. Keys are
strings, values are whole numbers or None. Functions are data too: {"fn": name, ...}. The output is the topic `out`.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Step = dict[str, Any]
Program = dict[str, Any]

KINDS = ("stateless", "aggregate", "tumbling", "hopping", "session", "sliding", "to_table", "table")


def random_program(seed: int) -> Program:
    """Return the program of a seed; it is always the same."""
    random, kind = Random(seed), KINDS[seed % len(KINDS)]
    while True:
        program = _Maker(random).program(f"{kind}-{seed}", kind)
        steps = program["steps"]
        if comparable(steps) and not _divides_copies(steps) and not partly_late(program):
            return program


def window_of(program: Program) -> Step | None:
    """Return the step of a program that makes windows."""
    return next((step for step in program["steps"] if step["op"] == "window"), None)


def partly_late(program: Program) -> bool:
    """Whether a record of sliding windows is late for some of them, and not for all."""
    window, now = window_of(program), 0
    if window is None or window["kind"] != "sliding":
        return False
    for *_, time in program["inputs"]:
        now = max(now, time)
        closed = time + window["grace"]  # until then the window is open that ends at the record
        if closed < now <= closed + window["size"]:
            return True
    return False


def collapses(steps: Sequence[Step], *, at_once: bool = False) -> bool:
    """Whether a step may get several records of a key together: we write one change for them, Kafka Streams one for each.

    Args:
        steps: The steps of the program.
        at_once: All inputs come in one batch; otherwise each has a commit of its own.
    """
    return _collapsed_at(steps, at_once) < len(steps)


def comparable(steps: Sequence[Step], *, at_once: bool = False) -> bool:
    """Whether no step depends on the changes of a table that are fewer here than in Kafka Streams."""
    first = _collapsed_at(steps, at_once)
    operators = [step["op"] for step in steps]
    if "group_by" in operators and {"count", "aggregate"} & {*operators[: operators.index("group_by")]}:
        return False  # Kafka Streams takes away the initial row, which has never been added
    changes = False
    for step in steps[first:]:
        if changes and (step["op"] in {"filter", *_AGGREGATES}):
            return False
        if step["op"] == "group_by" and step is not steps[first]:
            return False  # a group that is there between two changes only has no row here, and an empty one there
        # In a table that is filtered, the last change is the last row's; in a stream of its changes it need not be.
        changes |= step["op"] in {"to_stream", "window"}
    return True


_AGGREGATES = ("count", "sum", "min", "max", "reduce", "aggregate")
_SEVERAL = {"flat_map_values", "group_by", "window"}


def _collapsed_at(steps: Sequence[Step], at_once: bool) -> int:  # noqa: FBT001 - of this module alone
    """Return the index of the first step whose table may change several times at once."""
    several, merges = at_once, 0
    for number, step in enumerate(steps):
        final = step.get("emit") == "final"
        if several and step["op"] in {*_AGGREGATES, "to_table", "window", "group_by"} and not final:
            return number
        inner = [*step.get("steps", ()), *step.get("then", ()), *step.get("else", ())]
        merges += step["op"] == "merge"
        several |= merges > 1 or any(each["op"] in _SEVERAL for each in [step, *inner])
    return len(steps)


def _divides_copies(steps: Sequence[Step]) -> bool:
    """Whether several records that come of one are divided among branches: merged again, they have another order here."""
    copies = merges = 0
    for step in steps:
        if step["op"] == "split" and copies:
            return True
        if step["op"] in {"key_by", "repartition"}:
            copies = 0
        inner = [step, *step.get("steps", ()), *step.get("then", ()), *step.get("else", ())]
        merges += step["op"] == "merge"
        copies += merges > 1 or any(each["op"] == "flat_map_values" for each in inner)
    return False


class _Maker:
    """Draws a program.

    Args:
        random: The source of all random choices.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._topics = ["a"]

    def program(self, name: str, kind: str) -> Program:
        makers: dict[str, Callable[[], list[Step]]] = {
            "stateless": self._stateless,
            "aggregate": self._aggregates,
            "tumbling": lambda: self._windows("tumbling"),
            "hopping": lambda: self._windows("hopping"),
            "session": self._sessions,
            "sliding": self._sliding,
            "to_table": self._kept,
            "table": lambda: self._views(4),
        }
        steps = makers[kind]()
        source = "table" if kind == "table" else "stream"
        inputs = self._inputs(deletions=source == "table", apart=5 if kind in {"session", "sliding"} else 1)
        return {"name": name, "kind": source, "steps": steps, "inputs": inputs}

    # ---- inputs ---------------------------------------------------------------------------------------------------------

    def _inputs(self, *, deletions: bool, apart: int) -> list[list[Any]]:
        """Records whose times go on by small steps, with some out of order, some jumps, and some sent twice."""
        random, now, inputs = self._random, 1_000, list[list[Any]]()
        disorder = random.choice([0, 20, 60])
        keys = "wxyz"[: random.randint(1, 4)]
        for _ in range(random.randint(10, 24)):
            if inputs and random.random() < 0.1:
                inputs.append(list(random.choice(inputs[-4:])))
                continue
            now += random.choice([0, 1, 3, 5, 10, 15, 15, 120]) * apart // (apart if apart == 1 else 2)
            time = max(0, now - random.randint(0, disorder)) // apart * apart
            value = None if deletions and random.random() < 0.25 else random.randint(0, 30)
            inputs.append([random.choice(self._topics), random.choice(keys), value, time])
        return inputs

    # ---- kinds ----------------------------------------------------------------------------------------------------------

    def _stateless(self) -> list[Step]:
        steps = self._chain(self._random.randint(1, 5))
        if self._random.random() < 0.3:
            steps.append({"op": "map", "key": self._key(), "by": self._change()})
        return steps

    def _aggregates(self) -> list[Step]:
        steps = [*self._chain(self._random.randint(0, 3)), self._aggregate()]
        return [*steps, *self._views(2)]

    def _windows(self, kind: str) -> list[Step]:
        random = self._random
        steps = self._chain(random.randint(0, 3))
        if any(step["op"] not in {"map_values", "key_by", "repartition"} for step in steps):
            # Behind a topic of its own the records that are left have an event time of their own, on both sides.
            steps.append({"op": "repartition"})
        size = random.choice([10, 25, 40])
        window: Step = {"op": "window", "kind": kind, "size": size, "grace": random.choice([0, 5, 30, 200])}
        if kind == "hopping":
            window["every"] = random.choice([3, 5, 10, size])
        window |= {"into": self._aggregate(), "emit": random.choice(["changes", "final"])}
        return [*steps, window, *self._behind()]

    def _sessions(self) -> list[Step]:
        random = self._random
        steps = self._moves()
        gap = random.choice([5, 20, 35])
        # Times are multiples of 5, and gap and grace together are not, since sessions close one millisecond later here.
        grace = random.choice([2, 22, 52, 202])
        into = self._aggregate() | {"initial": 0}
        window = {"op": "window", "kind": "session", "gap": gap, "grace": grace, "into": into}
        return [*steps, window | {"emit": random.choice(["changes", "final"])}]

    def _sliding(self) -> list[Step]:
        random = self._random
        window: Step = {"op": "window", "kind": "sliding", "size": random.choice([10, 25, 40])}
        # Chosen as for sessions: final results come one millisecond later here.
        window |= {"grace": random.choice([2, 22, 52, 202])}
        into = self._aggregate()
        if into.get("fn") == "hash_drop":
            into["fn"] = (
                "hash"  # where a row is dropped, Kafka Streams forgets that its window has had records
            )
        window |= {"into": into, "emit": random.choice(["changes", "final"])}
        # The windows that one record changes have no order, so nothing behind them may depend on it.
        behind = [step for step in self._behind() if step["op"] in {"map_values", "filter"}]
        return [*self._moves(), window, *behind]

    def _moves(self) -> list[Step]:
        """Steps that drop no record, maybe with a topic between: event time is the same on both sides."""
        makers: list[Callable[[], Step]] = [
            lambda: {"op": "map_values", "by": self._change()},
            lambda: {"op": "key_by", "by": self._key()},
            lambda: {"op": "repartition"},
        ]
        return [self._random.choice(makers)() for _ in range(self._random.randint(0, 2))]

    def _kept(self) -> list[Step]:
        steps = [*self._chain(self._random.randint(0, 2)), {"op": "to_table"}]
        return [*steps, *self._views(3)]

    # ---- steps ----------------------------------------------------------------------------------------------------------

    def _chain(self, length: int, *, branch: bool = False) -> list[Step]:
        """Steps over a stream that keep no state."""
        steps, random = list[Step](), self._random
        for _ in range(length):
            op = random.choice(
                ["filter", "map_values", "flat_map_values", "key_by", "repartition", "split", "merge"]
            )
            if branch and op not in {"filter", "map_values", "flat_map_values"}:
                op = "map_values"
            moved = any(step["op"] in {"key_by", "repartition"} for step in steps)
            if op == "merge" and moved:
                op = "split"
            steps.append(self._step(op))
        return steps

    def _step(self, op: str) -> Step:  # noqa: PLR0911 - one for each operator
        if op == "filter":
            return {"op": op, "by": self._test()}
        if op == "map_values":
            return {"op": op, "by": self._change()}
        if op == "flat_map_values":
            return {"op": op, "by": {"fn": "copies", "n": self._random.randint(2, 4)}}
        if op == "key_by":
            return {"op": op, "by": self._key()}
        if op == "split":
            then, other = (self._chain(self._random.randint(0, 2), branch=True) for _ in range(2))
            return {"op": op, "by": self._test(), "then": then, "else": other}
        if op == "merge":
            topic = "b"
            if topic not in self._topics:
                self._topics.append(topic)
            return {"op": op, "with": topic, "steps": self._chain(self._random.randint(0, 2), branch=True)}
        return {"op": op}

    def _views(self, most: int) -> list[Step]:
        """Steps over a table."""
        steps, random = list[Step](), self._random
        for _ in range(random.randint(0, most)):
            op = random.choice(["filter", "map_values", "drop", "group_by"])
            if op == "group_by":
                into = random.choice([{"op": "count"}, {"op": "sum"}, {"op": "aggregate", "initial": 7}])
                steps.append({"op": op, "by": self._key(), "into": into})
            elif op == "filter":
                steps.append({"op": op, "by": self._test()})
            else:
                by = (
                    self._change()
                    if op == "map_values"
                    else {"fn": "drop", "n": random.randint(2, 5), "r": 1}
                )
                steps.append({"op": "map_values", "by": by})
        if random.random() < 0.3:
            steps.append({"op": "to_stream"})
            steps.extend(self._tail())
        return steps

    def _tail(self) -> list[Step]:
        """Steps over the changes of a table as records, None among them."""
        random = self._random
        steps: list[Step] = []
        if random.random() < 0.5:
            steps.append({"op": "map_values", "by": self._change()})
        if random.random() < 0.5:
            steps.append({"op": "filter", "by": self._test() | {"none": True}})
        if random.random() < 0.5:
            if random.random() < 0.5:
                steps.append({"op": "repartition"})
            steps.extend([{"op": "to_table"}, *self._views(1)])
        elif random.random() < 0.7:
            steps.append({"op": "filter", "by": self._test() | {"none": False}})
            steps.append({"op": "key_by", "by": self._key()})
            steps.append(self._aggregate())
        return steps

    def _behind(self) -> list[Step]:
        """Steps over windows."""
        random = self._random
        steps: list[Step] = []
        if random.random() < 0.3:
            steps.append({"op": "map_values", "by": self._change()})
        if random.random() < 0.3:
            steps.append({"op": "filter", "by": self._test() | {"none": True}})
        if random.random() < 0.3:
            steps.append({"op": "filter", "by": {"fn": "below", "n": 1 << 40}})
            steps.append({"op": "key_by", "by": self._key()})
            steps.append(self._aggregate())
        return steps

    def _aggregate(self) -> Step:
        random = self._random
        op = random.choice(["count", "sum", "min", "max", "reduce", "reduce", "aggregate"])
        if op == "count":
            return {"op": op}
        if op in {"sum", "min", "max"}:
            return {"op": op, "fn": op}
        if op == "reduce":
            return {"op": op, "fn": random.choice(["last", "hash", "hash", "hash_drop"])}
        return {"op": op, "fn": random.choice(["hash", "hash_drop"]), "initial": random.randint(0, 9)}

    # ---- functions ------------------------------------------------------------------------------------------------------

    def _test(self) -> Step:
        n = self._random.randint(2, 4)
        return {"fn": "not_mod", "n": n, "r": self._random.randrange(n)}

    def _change(self) -> Step:
        return {"fn": self._random.choice(["add", "times"]), "n": self._random.randint(1, 9)}

    def _key(self) -> Step:
        return {"fn": "key", "p": self._random.choice("kq"), "n": self._random.randint(1, 4)}

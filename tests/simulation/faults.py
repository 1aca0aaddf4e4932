"""The adversary: decides at each request to the broker, and at each failpoint, which process gets which fault."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.trace import CALL

from streamtable_testing.faults import Fault, Faults

if TYPE_CHECKING:
    from tests.simulation.life import Life, ViewLife
    from tests.simulation.world import World

_ASKS = frozenset({"fetch", "heartbeat", "topics", "watermarks", "stable-offsets", "read", "open"})
_WRITES = frozenset({"records", "send-offsets", "commit", "abort", "commit-offsets"})
_RARE = _WRITES | {"leave", "open"}
_RARE_TIMES = 5  # more likely than at the polls, which are most of the requests
_ANSWERS = (Fault.REFUSED, Fault.REQUEST_LOST, Fault.ANSWER_LOST)


class Crash(BaseException):
    """Unwinds the stack of a process that was killed."""


class Adversary(Faults):
    """Draws faults from the world's random numbers.

    Args:
        world: The world where the faults happen.
        rates: The probability of each hazard.

    Attributes:
        active: Whether faults happen.
        cut_until: The time until which no process reaches the broker.
    """

    def __init__(self, world: "World", rates: Mapping[str, float]) -> None:
        self._world = world
        self._rates = rates
        self._crash = rates["crash"]
        self._freeze = self._crash + rates["freeze"]
        self._interleave = self._freeze + rates["interleave"]
        self._fault = self._interleave + rates["fault"]
        self.active = True
        self.cut_until = 0.0
        self.faults = 0

    def before(self, process: str, call: str) -> Fault | None:
        world = self._world
        life = world.lives[process]
        if life.dead:
            raise Crash
        world.trace.add(process, CALL, call)
        if life.telling_lost and call in _WRITES:
            raise world.broken(f"I7: {process} writes ({call}) in the callback that its partitions are lost")
        if call in _WRITES:
            world.check()  # a turn may commit more than once
        if not self.active:
            return None
        life.at = (call,)
        draw = world.rng.random() / (_RARE_TIMES if call in _RARE else 1)
        if draw < self._fault:
            self._meddle(life, draw, between_threads=True)
        if len(world.kafka.late) and world.rng.random() < self._rates["late"]:
            world.trace.add("", "late arrives", len(world.kafka.late))
            world.kafka.deliver_late()
        now = world.clock.monotonic()
        if now < life.cut_until or now < self.cut_until:
            return Fault.REQUEST_LOST
        if life.unlucky and world.rng.random() < 0.5:
            life.unlucky -= 1
            return self._choose(life, call)
        return self._choose(life, call) if self._interleave <= draw < self._fault else None

    def at_failpoint(self, life: "Life", name: str) -> None:
        if life.dead:
            raise Crash
        if self.active:
            life.at = ("at", name)
            draw = self._world.rng.random() / _RARE_TIMES
            if draw < self._freeze:
                # A failpoint may be reached with a lock held, so no other thread of the process runs there.
                self._meddle(life, draw, between_threads=False)

    def marker_late(self, transactional_id: str, topic: str) -> bool:
        del transactional_id
        late = self.active and self._world.rng.random() < self._rates["marker-late"]
        if late:
            self._world.trace.add("", "marker late", topic)
        return late

    def removal_told_as_revocation(self, process: str) -> bool:
        del process
        return self.active and self._world.rng.random() < self._rates["reported-as-revoked"]

    def delivers_again(self, life: "Life") -> bool:
        again = self.active and self._world.rng.random() < self._rates["deliver-again"]
        if again:
            self._world.trace.add(life.name, "reported again")
        return again

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _meddle(self, life: "Life | ViewLife", draw: float, *, between_threads: bool) -> None:
        world = self._world
        if draw < self._crash:
            world.crash(life)
        elif draw < self._freeze:
            world.freeze(life)
        elif draw < self._interleave and between_threads and len(life.running) == 1:
            other = "background" if "main" in life.running else "main"
            if life.can(other):
                world.step(life, other)
        if life.dead:
            raise Crash

    def _choose(self, life: "Life | ViewLife", call: str) -> Fault:
        rng = self._world.rng
        late = call in _WRITES and self._world.shape.exactly_once
        if call in _ASKS:
            fault = rng.choice(_ANSWERS) if call in {"heartbeat", "open"} else Fault.REQUEST_LOST
        else:
            fault = rng.choice((*_ANSWERS, Fault.LATE) if late else _ANSWERS)
        self.faults += 1
        if rng.random() < self._rates["burst"]:
            life.unlucky = rng.randint(1, 3)
        self._world.trace.add(life.name, "FAULT", call, fault.value)
        return fault

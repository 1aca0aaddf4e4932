"""Whether groups fall behind, found by looking twice: in which partitions, by how much, and whose these are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from streamtable.kafka.admin import GroupDescription, GroupMember, KafkaAdmin
from streamtable.types import TopicPartition
from streamtable_cli.findings import Finding, problem, warning
from streamtable_cli.groups import ranges, standings_of
from streamtable_cli.output import count
from streamtable_cli.session import Session, describe_groups

GROWN_MIN = 100
"""Records by which a lag has to grow, and a tenth: it goes up and down with every commit."""

TAKES_LONG = (
    "look at the log of that process: a record that takes long, a store or a call that does not answer, a table that is "
    "being loaded"
)
NOBODYS = "it is being moved, or a process does not let it go: streamtable group describe"
STAYS_OPEN = (
    "its producer was killed or is cut off; the broker ends it after its time-out, a minute at most for ours. If it stays: "
    "kafka-transactions.sh find-hanging, and abort"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a group at one look.

    Attributes:
        committed: the next offset of the group; None: never.
        end: up to where committed records can be read.
        high: its end; what is between belongs to transactions that are open.
        lag: records to go.
    """

    committed: int | None
    end: int
    high: int
    lag: int


@dataclass(frozen=True, slots=True)
class Look:
    """A group at one moment; `at` is in seconds, of any clock that only goes forward."""

    at: float
    group: GroupDescription
    places: Mapping[TopicPartition, Place]

    @property
    def waits(self) -> bool:
        """Whether there is anything that a second look could explain."""
        return any(each.lag or each.high > each.end for each in self.places.values())


def looks(
    session: Session, admin: KafkaAdmin, names: Iterable[str], clock: Callable[[], float]
) -> dict[str, Look]:
    """Those groups that exist, as they are now. Raises `RetryLater`."""
    found = {}
    for name, group in describe_groups(session, admin, names).items():
        standings = standings_of(session, admin, group)
        ends = session.patiently(lambda each=standings: admin.stable_ends([one.place for one in each]))  # type: ignore[misc]  # bound now
        found[name] = Look(
            clock(),
            group,
            {
                each.place: Place(
                    each.committed.next_offset if each.committed else None,
                    ends[each.place],
                    each.end,
                    each.lag or 0,
                )
                for each in standings
            },
        )
    return found


def watched(
    session: Session,
    admin: KafkaAdmin,
    names: Iterable[str],
    seconds: float,
    clock: Callable[[], float],
    wait: Callable[[float], object],
) -> Iterator[Finding]:
    """What two looks tell that are so many seconds apart; there is one only where nothing waits."""
    first = {name: look for name, look in looks(session, admin, names, clock).items() if look.waits}
    if not first or seconds <= 0:
        return
    wait(seconds)
    for name, look in looks(session, admin, first, clock).items():
        yield from compared(first[name], look)


def compared(before: Look, after: Look) -> Iterator[Finding]:
    """What has become of a group from one look to the next. A group without members is told of elsewhere."""
    seconds = max(after.at - before.at, 0.001)
    group = after.group
    both = {
        place: (before.places[place], now) for place, now in after.places.items() if place in before.places
    }
    stand, grow, held = (
        [place for place, pair in both.items() if found(*pair)] for found in (_stands, _grows, _is_held)
    )
    subject = f"group {group.name}"
    for owner, places in _by_owner(group, stand if group.members else ()):
        waiting = sum(after.places[place].lag for place in places)
        yield problem(
            subject,
            f"{ranges(places)}: {count(waiting, 'record')} to do, and nothing committed for {seconds:.0f} s; {_whose(owner)}",
            TAKES_LONG if owner else NOBODYS,
        )
    for owner, places in _by_owner(group, grow if group.members else ()):
        was, now = (sum(look.places[place].lag for place in places) for look in (before, after))
        yield warning(
            subject,
            f"{ranges(places)}: lag grows, {was} to {now} in {seconds:.0f} s; {_whose(owner)}",
            _too_slow(group, len(after.places), len(places)),
        )
    if held:
        yield warning(
            subject,
            f"{ranges(held)}: a transaction has been open for {seconds:.0f} s, and what is behind it cannot be read",
            STAYS_OPEN,
        )


def _stands(before: Place, now: Place) -> bool:
    return before.lag > 0 and now.lag > 0 and before.committed == now.committed


def _grows(before: Place, now: Place) -> bool:
    return before.committed != now.committed and now.lag - before.lag >= max(GROWN_MIN, before.lag / 10)


def _is_held(before: Place, now: Place) -> bool:
    return before.end == now.end and before.end < before.high


def _by_owner(
    group: GroupDescription, places: Iterable[TopicPartition]
) -> Iterator[tuple[GroupMember | None, list[TopicPartition]]]:
    owners = {place: member for member in group.members for place in member.partitions}

    def name(place: TopicPartition) -> str:
        return owners[place].member_id if place in owners else ""

    for _, found in groupby(sorted(places, key=lambda place: (name(place), place)), name):
        part = list(found)
        yield owners.get(part[0]), part


def _whose(owner: GroupMember | None) -> str:
    if owner is None:
        return "no member has it"
    who = " ".join(dict.fromkeys(filter(None, (owner.instance_id, owner.client_id))))
    return f"with {who or owner.member_id} at {owner.host}"


def _too_slow(group: GroupDescription, partitions: int, growing: int) -> str:
    members = len(group.members)
    if growing < partitions / 2 and members > 1:
        return "the others keep up: one key may have most of the records, or that machine is slow"
    if members < partitions:
        return (
            f"more comes in than is done: start more processes, {members} of at most {partitions} are there"
        )
    return "more comes in than is done, and there is a process for each partition: make the handler faster"

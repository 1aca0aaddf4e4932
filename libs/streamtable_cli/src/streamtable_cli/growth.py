"""Whether groups fall behind, found by looking twice: in which partitions, by how much, and whose these are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from streamtable.errors import StreamtableError, TransactionPending
from streamtable.kafka.admin import GroupDescription, GroupMember, KafkaAdmin
from streamtable.transactions import RUNBOOK, commands
from streamtable.types import TopicPartition
from streamtable_cli.findings import Finding, problem, warning
from streamtable_cli.groups import Standing, ranges, standings_of
from streamtable_cli.output import count
from streamtable_cli.session import Session, describe_groups

OFFSETS_TOPIC = "__consumer_offsets"
GROWN_MIN = 100
"""Records by which a lag has to grow, and a tenth: it goes up and down with every commit."""

TAKES_LONG = (
    "look at the log of that process: a record that takes long, a store or a call that does not answer, a table that is "
    "being loaded"
)
NOBODYS = "it is being moved, or a process does not let it go: streamtable group describe"
STAYS_OPEN = (
    "its producer was killed or is cut off; the broker ends it after its time-out, which is 10 s for ours. If it stays, see "
    "whose it is: {show}; then read {runbook} before you end it: {abort}"
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
    """A group at one moment.

    Attributes:
        at: Seconds, of any clock that only goes forward.
        group: Its members.
        places: Its inputs and its own topics, of which the changelogs have no committed offset.
        offsets_held: The partition with the group's committed offsets, if a transaction holds these, and its last stable
            offset; -1 for what is not known.
    """

    at: float
    group: GroupDescription
    places: Mapping[TopicPartition, Place]
    offsets_held: tuple[TopicPartition, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether there is anything that a second look could explain."""
        held = self.offsets_held is not None
        return held or any(each.lag or each.high > each.end for each in self.places.values())


def looks(
    session: Session, admin: KafkaAdmin, names: Iterable[str], clock: Callable[[], float]
) -> dict[str, Look]:
    """Those groups that exist, as they are now. Raises `RetryLater`."""
    found = {}
    for name, group in describe_groups(session, admin, names).items():
        standings: list[Standing] = []
        offsets_held = None
        try:
            standings = standings_of(session, admin, group)
        except TransactionPending:
            offsets_held = _where_held(admin, name)
        read = {each.place: each for each in standings}
        own = [
            TopicPartition(topic, number)
            for topic, partitions in admin.topic_partitions().items()
            for number in range(partitions)
            if topic.startswith(f"{name}-")
        ]
        marks = admin.watermarks_known({*read, *own})
        ends = session.patiently(lambda asked=list(marks): admin.stable_ends(asked))  # type: ignore[misc]  # bound now
        places = {place: _place(read.get(place), ends[place], marks[place].high) for place in marks}
        found[name] = Look(clock(), group, places, offsets_held)
    return found


def _place(standing: Standing | None, end: int, high: int) -> Place:
    if standing is None:
        return Place(None, end, high, 0)
    committed = standing.committed
    return Place(committed.next_offset if committed else None, end, standing.end, standing.lag or 0)


def _where_held(admin: KafkaAdmin, group: str) -> tuple[TopicPartition, int]:
    place = admin.offsets_partition(group)
    if place is None:
        return TopicPartition(OFFSETS_TOPIC, -1), -1
    try:
        return place, admin.stable_ends([place])[place]
    except StreamtableError:
        return place, -1  # mostly because this user has no right to it


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
        yield from compared(first[name], look, admin.servers)


def compared(before: Look, after: Look, servers: str) -> Iterator[Finding]:
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
            _too_slow(group, sum(each.committed is not None for each in after.places.values()), len(places)),
        )
    if held:
        yield warning(
            subject,
            f"{ranges(held)}: a transaction has been open for {seconds:.0f} s, and what is behind it cannot be read",
            _ended_by(servers, held[0], after.places[held[0]].end),
        )
    if before.offsets_held is not None and before.offsets_held == after.offsets_held:
        yield problem(
            subject,
            f"a transaction with its committed offsets has been open for {seconds:.0f} s: no partition of it can recover",
            _ended_by(servers, *after.offsets_held),
        )


def _ended_by(servers: str, place: TopicPartition, offset: int) -> str:
    show, abort = commands(servers, place, offset)
    return STAYS_OPEN.format(show=show, abort=abort, runbook=RUNBOOK)


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

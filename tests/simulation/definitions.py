"""Steps of flows beside their definitions: what each makes of all events, computed at once from the docs alone.

The definitions know nothing of batches, partitions, commits and crashes: no result may depend on these. No event is late.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from streamtable import Aggregate, Count, EventTime, Json, Max, Mean, Min, Stream, String, Sum, Table
from streamtable.flow import Flow, Hopping, KeyedStream, KeyedTable, Session, Tumbling
from streamtable.graph.aggregate import Collect, TopK
from streamtable_testing import Tester

SALES, VISITS = (Stream[str, Any](name, String(), Json()) for name in ("sales", "visits"))
USERS, SHOPS = (Table[str, Any](name, String(), Json()) for name in ("users", "shops"))
KEYS = "abcdef"
NOW_MS = 1_700_000_000_000
_BEGAN_MS, _SPREAD_MS = NOW_MS - 3_600_000, 600_000
_DAY = timedelta(days=1)
_LONG = timedelta(seconds=1000)


class Event(NamedTuple):
    """A record: its topic, its key, its value (None: a deletion of a table's row) and its event time in milliseconds."""

    topic: str
    key: str
    value: Any
    time_ms: int


Events = Sequence[Event]
Results = Mapping[Any, Any]


@dataclass(frozen=True)
class Sources:
    """The streams and tables that steps begin with."""

    sales: KeyedStream[str, Any]
    visits: KeyedStream[str, Any]
    users: KeyedTable[str, Any]
    shops: KeyedTable[str, Any]


class Step(NamedTuple):
    """A step of a flow.

    Attributes:
        found: Returns its results from the topics of a Tester.
        defined: Returns the results that all events make by the step's definition.
    """

    found: Callable[[Tester], Results]
    defined: Callable[[Events], Results]


def random_events(rng: Random) -> list[Event]:
    """Return events in the order of their arrival, which is not the order of their times."""
    some_without = rng.random() < 0.4
    events = []
    for number in range(rng.randint(10, 40)):
        topic = rng.choice(("sales", "sales", "visits", "users", "shops"))
        amount = None if some_without and rng.random() < 0.2 else number * 7919 % 1000
        value = {
            "id": number, "amount": amount, "city": rng.choice("xyz"), "shop": rng.choice([*KEYS, None]),
        }  # fmt: skip
        deleted = topic in {"users", "shops"} and rng.random() < 0.2
        time_ms = _BEGAN_MS + rng.randrange(_SPREAD_MS) // 1000 * 1000
        events.append(Event(topic, rng.choice(KEYS), None if deleted else value, time_ms))
    return events


def random_flow(rng: Random) -> tuple[Flow, list[Step]]:
    """Return a flow with some steps that are independent of each other."""
    flow = Flow("f", event_time=EventTime(idle_after=timedelta(seconds=2)))
    sources = Sources(flow.stream(SALES), flow.stream(VISITS), flow.table(USERS), flow.table(SHOPS))
    makers = rng.sample((windows, sessions, pairs, joined_rows, referred_rows, cities), rng.randint(1, 3))
    return flow, [make(sources, rng) for make in makers]


# ---- aggregates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folded:
    """An aggregate beside its definition.

    Attributes:
        aggregate: The aggregate.
        of: Returns its row of some events; None: there is none.
        shown: Returns the part of a row that the definition knows; None: the row says that there is nothing.
        amounts: Whether an event without an amount is as if it had not come.
    """

    aggregate: Aggregate[Any, Any]
    of: Callable[[Sequence[Any]], Any]
    shown: Callable[[Any], Any]
    amounts: bool = True


def _of_amounts(fold: Callable[[list[int]], Any]) -> Callable[[Sequence[Any]], Any]:
    def of(values: Sequence[Any]) -> Any:
        amounts = [value["amount"] for value in values if value["amount"] is not None]
        return fold(amounts) if amounts else None

    return of


def _same(row: Any) -> Any:
    return row


_amount = itemgetter("amount")
FOLDED = (
    Folded(Count(), lambda values: len(values) or None, lambda row: row or None, amounts=False),
    Folded(Sum(_amount), _of_amounts(lambda amounts: sum(amounts) or None), lambda row: row or None),
    Folded(
        TopK(3, _amount),
        _of_amounts(lambda amounts: sorted(amounts, reverse=True)[:3]),
        lambda row: list(map(_amount, row)) or None,
    ),
    Folded(Max(_amount), _of_amounts(max), _same),
    Folded(Min(_amount), _of_amounts(min), _same),
    Folded(
        Mean(_amount),
        _of_amounts(lambda amounts: round(sum(amounts) / len(amounts), 6)),
        lambda row: round(row["mean"], 6) if row["count"] else None,
    ),
    Folded(
        Collect(itemgetter("id")),
        lambda values: sorted(each["id"] for each in values) or None,
        lambda row: sorted(row) or None,
        amounts=False,
    ),
)


def _without_none(results: Mapping[Any, Any]) -> Results:
    return {key: value for key, value in results.items() if value is not None}


def _rows(table: KeyedTable[Any, Any], shown: Callable[[Any], Any], key: Callable[[Any], Any]) -> Any:
    def found(tester: Tester) -> Results:
        return _without_none({key(each): shown(row) for each, row in tester.table(table.table).items()})

    return found


# ---- steps -------------------------------------------------------------------------------------------------------------


def windows(sources: Sources, rng: Random) -> Step:
    """An aggregate over tumbling or hopping windows."""
    folded, size = rng.choice(FOLDED), rng.choice((60_000, 120_000))
    every = rng.choice((size, 30_000))
    window = Tumbling(_ms(size), grace=_DAY) if every == size else Hopping(_ms(size), _ms(every), grace=_DAY)
    table = sources.sales.group_by_key().window(window).fold("windows", folded.aggregate, value=Json())

    def defined(events: Events) -> Results:
        members: dict[Any, list[Any]] = defaultdict(list)
        for event in _of(events, "sales"):
            last = event.time_ms // every * every
            for start in range(last, event.time_ms - size, -every):
                members[event.key, start].append(event.value)
        return _without_none({place: folded.of(values) for place, values in members.items()})

    return Step(_rows(table, folded.shown, lambda each: (each.key, each.start_ms)), defined)


def sessions(sources: Sources, rng: Random) -> Step:
    """An aggregate over sessions."""
    gap, folded = rng.choice((5_000, 20_000, 60_000)), rng.choice(FOLDED)
    table = (
        sources.sales.group_by_key()
        .window(Session(_ms(gap), grace=_DAY))
        .fold("sessions", folded.aggregate, value=Json())
    )

    def defined(events: Events) -> Results:
        found: dict[Any, Any] = {}
        for key in KEYS:
            sales = [
                each
                for each in _of(events, "sales", key)
                if each.value["amount"] is not None or not folded.amounts
            ]
            for session in _sessions(sorted(sales, key=_time), gap):
                place = (key, session[0].time_ms, session[-1].time_ms)
                found[place] = folded.of([each.value for each in session])
        return _without_none(found)

    return Step(_rows(table, folded.shown, lambda each: (each.key, each.start_ms, each.end_ms)), defined)


def _sessions(events: Sequence[Event], gap_ms: int) -> Iterator[list[Event]]:
    session: list[Event] = []
    for event in events:
        if session and event.time_ms - session[-1].time_ms > gap_ms:
            yield session
            session = []
        session.append(event)
    if session:
        yield session


def pairs(sources: Sources, rng: Random) -> Step:
    """A join of two streams: each pair, and each record alone, comes out once."""
    how = rng.choice(("join", "left_join", "outer_join"))
    before, after = rng.choice((0, 5_000, 30_000)), rng.choice((0, 10_000, 60_000))
    out = Stream[str, Any]("pairs", String(), Json())
    within = (_ms(before), _ms(after))
    made = getattr(sources.sales, how)(
        "waiting", sources.visits, _ids, within=within, grace=_LONG, value=Json()
    )
    made.to(out)

    def defined(events: Events) -> Results:
        found: Counter[Any] = Counter()
        left, right = _of(events, "sales"), _of(events, "visits")
        matched = set()
        for one in left:
            for other in right:
                if one.key == other.key and -before <= other.time_ms - one.time_ms <= after:
                    found[one.key, one.value["id"], other.value["id"]] += 1
                    matched |= {one.value["id"], other.value["id"]}
        alone = (left if how != "join" else []), (right if how == "outer_join" else [])
        found.update(
            (each.key, each.value["id"], None) for each in alone[0] if each.value["id"] not in matched
        )
        found.update(
            (each.key, None, each.value["id"]) for each in alone[1] if each.value["id"] not in matched
        )
        return found

    def written(tester: Tester) -> Results:
        return Counter((each.key, *(each.value or ())) for each in tester.records(out))

    return Step(written, defined)


def joined_rows(sources: Sources, rng: Random) -> Step:
    """A join of two tables by their keys."""
    how = rng.choice(("join", "left_join", "outer_join"))
    joined = getattr(sources.users, how)("rows", sources.shops, _ids, value=Json())

    def defined(events: Events) -> Results:
        users, shops = _last(events, "users"), _last(events, "shops")
        keys = {"join": users.keys() & shops.keys(), "left_join": users.keys()}.get(
            how, users.keys() | shops.keys()
        )
        return {key: _ids(users.get(key), shops.get(key)) for key in keys}

    return Step(_kept(joined, "joined"), defined)


def referred_rows(sources: Sources, rng: Random) -> Step:
    """A join of two tables by a foreign key."""
    how = rng.choice(("join", "left_join"))
    joined = getattr(sources.users, how)("shop", sources.shops, _ids, on=itemgetter("shop"), value=Json())

    def defined(events: Events) -> Results:
        users, shops = _last(events, "users"), _last(events, "shops")
        found = {key: (user, shops.get(user["shop"])) for key, user in users.items()}
        return {
            key: _ids(user, shop)
            for key, (user, shop) in found.items()
            if how == "left_join" or shop is not None
        }

    return Step(_kept(joined, "referred"), defined)


def cities(sources: Sources, rng: Random) -> Step:
    """An aggregate of the rows of a table, grouped by a part of them."""
    folded = rng.choice(FOLDED)
    grouped = sources.users.group_by("cities", itemgetter("city"), key=String(), value=Json())
    table = grouped.fold("folded", folded.aggregate, value=Json())

    def defined(events: Events) -> Results:
        members: dict[str, list[Any]] = defaultdict(list)
        for user in _last(events, "users").values():
            members[user["city"]].append(user)
        return _without_none({city: folded.of(values) for city, values in members.items()})

    return Step(_rows(table, folded.shown, str), defined)


def _kept(joined: KeyedTable[Any, Any], name: str) -> Any:
    return _rows(joined.to_stream().to_table(name), _same, str)


def _ids(one: Any, other: Any) -> list[Any]:
    return [None if each is None else each["id"] for each in (one, other)]


def _of(events: Events, topic: str, key: str | None = None) -> list[Event]:
    return [each for each in events if each.topic == topic and key in {None, each.key}]


def _last(events: Events, topic: str) -> dict[str, Any]:
    rows = {each.key: each.value for each in _of(events, topic)}
    return {key: row for key, row in rows.items() if row is not None}


def _time(event: Event) -> int:
    return event.time_ms


def _ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)

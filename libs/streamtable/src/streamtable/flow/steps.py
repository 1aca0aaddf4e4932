"""The stateless steps: each makes columns of columns, and calls nothing per record but the user's functions."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from streamtable.base.mapped import check_results, mapped
from streamtable.base.topics import Stream
from streamtable.errors import GraphError
from streamtable.flow.plan.columns import Columns, Scope, emit
from streamtable.flow.plan.nodes import Step
from streamtable.graph.edge import checked_function

Function = Callable[..., Any]

_PARTS = frozenset({dict, str, bytes})  # whose items are keys or letters, which no function means


def called(function: Function, records: Columns, *, with_key: bool) -> list[Any]:
    """Return the results of a function for each value, or for each key and value."""
    if with_key:
        return mapped(function, records.keys, records.values)
    return mapped(function, records.values)


# ---- records ----------------------------------------------------------------------------------------------------------


def filter_values(predicate: Function, *, with_key: bool) -> Step:
    checked_function(predicate, "the predicate of filter()")
    return lambda _, records: records.only(_checked(called(predicate, records, with_key=with_key)))


def map_values(function: Function, *, with_key: bool) -> Step:
    return lambda _, records: records.with_values(called(function, records, with_key=with_key))


def map_pairs(function: Function) -> Step:
    return lambda _, records: _repaired(records, _whole(mapped(function, records.keys, records.values)))


def flat_map_pairs(function: Function) -> Step:
    def step(_: Scope, records: Columns) -> Columns:
        made = mapped(list, _whole(mapped(function, records.keys, records.values)))
        return _repaired(records.repeated(map(len, made)), _whole(list(chain.from_iterable(made))))

    return step


def flat_map_values(function: Function, *, with_key: bool) -> Step:
    def step(_: Scope, records: Columns) -> Columns:
        return _flattened(records, mapped(list, _whole(called(function, records, with_key=with_key))))

    return step


def peek(function: Function) -> Step:
    checked_function(function, "the function of peek()")

    def step(_: Scope, records: Columns) -> Columns:
        _checked(mapped(function, records.keys, records.values))
        return records.with_values(records.values)  # the values may have been changed in place

    return step


def branches(predicates: Sequence[Function]) -> tuple[Step, Sequence[Step]]:
    """Return the step that chooses the branch of each record, and for each branch the step that takes its records.

    The record goes to the first branch whose predicate is true, else to the last, which has none.
    """
    for each in predicates:
        checked_function(each, "a predicate of split()")

    def mark(_: Scope, records: Columns) -> Columns:
        values = records.values
        marks = [len(predicates)] * len(values)
        left: Sequence[int] = range(len(values))
        for branch, predicate in enumerate(predicates):
            hits = _checked(mapped(predicate, [values[index] for index in left]))
            for index, hit in zip(left, hits, strict=True):
                if hit:
                    marks[index] = branch
            left = [index for index, hit in zip(left, hits, strict=True) if not hit]
        return records.with_values(list(zip(marks, values, strict=True)))

    def take(branch: int) -> Step:
        def step(_: Scope, records: Columns) -> Columns:
            mine = records.only([mark == branch for mark, _ in records.values])
            return mine.with_values([value for _, value in mine.values])

        return step

    return mark, [take(branch) for branch in range(len(predicates) + 1)]


def process(handler: Function) -> Step:
    """Call a handler with the context of the record; the next step gets its result."""

    def step(scope: Scope, records: Columns) -> Columns:
        return _flattened(
            records, mapped(list, _whole([handler(scope, value) or () for value in records.values]))
        )

    return step


def _checked(results: list[Any]) -> list[Any]:
    """Return the results of a predicate. Raises `GraphError` for a generator, which would be true and do nothing."""
    check_results(results)
    return results


def _whole(results: list[Any]) -> list[Any]:
    """Return the results of a function. Raises `TypeError` for a dict or a text, which would be taken apart; an empty one is none."""
    if not _PARTS.isdisjoint(map(type, results)) and any(each for each in results if type(each) in _PARTS):
        raise TypeError(
            "the function has returned a dict or a text, which would be taken apart: return a list of values, of flat_map() a "
            "list of pairs, and of map() a pair"
        )
    return results


def _flattened(records: Columns, made: Sequence[Sequence[Any]]) -> Columns:
    """Return the records with all values that were made of each."""
    return records.repeated(map(len, made)).with_values(list(chain.from_iterable(made)))


def _repaired(records: Columns, pairs: Sequence[tuple[Any, Any]]) -> Columns:
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    return records.with_values(values).with_keys(keys)


# ---- output -----------------------------------------------------------------------------------------------------------


def send(stream: Stream[Any, Any]) -> Step:
    """Write the records to a stream, with their event times as timestamps."""
    return lambda scope, records: emit(scope, stream, records)


def send_chosen(choose: Function, streams: Sequence[Stream[Any, Any]]) -> Step:
    """Write each record to the stream that a function chooses; None: to none."""
    known = {stream.name: stream for stream in streams}

    def step(scope: Scope, records: Columns) -> None:
        chosen = [None if to is None else to.name for to in mapped(choose, records.keys, records.values)]
        for name in dict.fromkeys(chosen):
            if name is not None and name not in known:
                raise GraphError(f"to() chose the stream {name!r}: name all that it may choose by streams=")
            if name is not None:
                emit(scope, known[name], records.only([to == name for to in chosen]))

    return step


# ---- changes of tables --------------------------------------------------------------------------------------------------


def filter_rows(predicate: Function, *, with_key: bool) -> Step:
    """Filter changes. Rejected rows count as missing: a change to one is a deletion, a change from one a new row."""
    checked_function(predicate, "the predicate of filter()")

    def step(_: Scope, changes: Columns) -> Columns:
        news, olds = _both(predicate, changes, with_key=with_key)
        check_results([*news, *olds])
        values = [row if kept else None for row, kept in zip(changes.values, news, strict=True)]
        before = [row if kept else None for row, kept in zip(changes.olds or (), olds, strict=True)]
        return changes.with_values(values, before).only_changes()

    return step


def map_rows(function: Function, *, with_key: bool) -> Step:
    return lambda _, rows: rows.with_values(*_both(function, rows, with_key=with_key)).only_changes()


def rows_as_records(_: Scope, changes: Columns) -> Columns:
    """Make a record of each change: the new row, or None."""
    return changes.with_values(changes.values)


def retractions(function: Function, *, with_key: bool) -> Step:
    """Make records with another key from changes: one removes the old row, one adds the new one."""

    def step(_: Scope, changes: Columns) -> Columns:
        news, olds = _both(function, changes, with_key=with_key)
        columns = zip(news, olds, changes.values, changes.olds or (), strict=True)
        made = [
            [
                *([(before, (False, old))] if old is not None else []),
                *([(after, (True, new))] if new is not None else []),
            ]
            for after, before, new, old in columns
        ]
        records = changes.repeated(map(len, made))
        return _repaired(rows_as_records(_, records), list(chain.from_iterable(made)))

    return step


def _both(function: Function, changes: Columns, *, with_key: bool) -> tuple[list[Any], list[Any]]:
    """Call a function for the new and the old rows; a missing row stays None."""
    olds = changes.olds or ()
    if with_key:
        pairs = [list(zip(changes.keys, rows, strict=True)) for rows in (changes.values, olds)]
        news, before = ([None if p[1] is None else function(*p) for p in column] for column in pairs)
        return news, before
    return [None if row is None else function(row) for row in changes.values], [
        None if row is None else function(row) for row in olds
    ]

"""The streams and tables of click counting, and the two groups that do the same in different ways."""

from typing import Final

from click_count.domain import add_click
from contracts.records import USER_CLICK, UserClick
from streamtable import Avro, Context, Count, Group, Input, OnError, Persist, Stream, String

USER_CLICKS: Final[Stream[str, UserClick]] = Stream("user-clicks", key=String(), value=Avro(USER_CLICK))
"""One record a click, keyed by the user's id."""


def count_click(ctx: Context[str, int], click: UserClick) -> None:
    """The handler that is called for each record."""
    del click
    ctx.set(add_click(ctx.value))


def by_count(name: str) -> Group[str, int]:
    """The group with the built-in aggregate, which runs over whole batches; its table is `<name>-table`."""
    return Group(
        name, Input(USER_CLICKS, aggregate=Count(), on_error=OnError.DEAD_LETTER), Persist(Avro("long"))
    )


def by_record(name: str) -> Group[str, int]:
    """The same table, made by calling `count_click` for each record."""
    return Group(
        name, Input(USER_CLICKS, handler=count_click, on_error=OnError.DEAD_LETTER), Persist(Avro("long"))
    )

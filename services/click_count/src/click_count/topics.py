"""The streams and tables of click counting, and two groups that compute the same table in different ways."""

from datetime import timedelta
from typing import Final

from click_count.domain import add_click
from contracts.records import USER_CLICK, UserClick
from streamtable import Avro, Context, Count, Group, Input, Once, OnError, Persist, Stream, String

USER_CLICKS: Final[Stream[str, UserClick]] = Stream("user-clicks", key=String(), value=Avro(USER_CLICK))
"""One record for each click, keyed by the user's id."""

ONCE: Final[Once[UserClick]] = Once(by="id", within=timedelta(hours=24))
"""A click that is sent again, for example after a lost response, counts once. Retries have the same user."""


def count_click(ctx: Context[str, int], click: UserClick) -> None:
    """The handler that is called for each record."""
    del click
    ctx.set(add_click(ctx.value))


def by_count(name: str = "click-count") -> Group[str, int]:
    """Return the group with the built-in aggregate, which runs over whole batches; its table is `<name>-table`."""
    return Group(
        name,
        Input(USER_CLICKS, aggregate=Count(), once=ONCE, on_error=OnError.DEAD_LETTER),
        Persist(Avro("long")),
    )


def by_record(name: str) -> Group[str, int]:
    """Return the group that computes the same table by calling `count_click` for each record."""
    return Group(
        name,
        Input(USER_CLICKS, handler=count_click, once=ONCE, on_error=OnError.DEAD_LETTER),
        Persist(Avro("long")),
    )

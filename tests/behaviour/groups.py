"""The group that crash tests run in a process of its own as well, so it must be known by name."""

from collections.abc import Callable

from streamtable import Context, Group, Input, Long, Output, Persist, Stream, String


def counting(name: Callable[[str], str], tag: str = "") -> Group[str, int]:
    """Counts the events of a key, and emits each new count. `tag` makes its topics' names unique."""
    counts: Stream[str, int] = Stream(name(f"counts{tag}"), String(), Long())

    def count(ctx: Context[str, int], _: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(counts, ctx.key, ctx.value)

    events = Stream(name(f"events{tag}"), String(), String())
    return Group(name(f"count{tag}"), Input(events, count), Output(counts), Persist(Long()))

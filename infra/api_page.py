"""Writes docs/reference/api.md from the docstrings of the public names. Run by `make gen`."""

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import griffe

from streamtable.base.settings import default_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "api.md"
HEAD = """# The library's names

Made from the docstrings by `make gen`; a test sees to it that it is up to date. All of these are imported from
`streamtable` itself, except where another module is named. Errors are on [their own page](errors.md).
"""
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Streams and tables": ("Stream", "Table"),
    "Codecs": (
        "String",
        "Bytes",
        "Long",
        "NoKey",
        "Json",
        "Typed",
        "Avro",
        "avro_branch",
        "avro_branch_of",
        "SingleObject",
        "Plain",
    ),
    "Groups": (
        "Group",
        "Input",
        "Once",
        "EventTime",
        "Persist",
        "State",
        "Due",
        "Timer",
        "Output",
        "Join",
        "Changes",
        "Lookup",
        "Loop",
        "Visit",
        "OnError",
    ),
    "Handlers": (
        "Context",
        "BatchContext",
        "RowChange",
        "StateTable",
        "DueRows",
        "Timers",
        "Aggregate",
        "Count",
        "Sum",
        "Min",
        "Max",
        "Mean",
        "TopK",
        "Collect",
        "Last",
    ),
    "Apps and processors": (
        "App",
        "Processor",
        "LocalAnswer",
        "Freshness",
        "PartitionNotAssigned",
        "ProcessorOptions",
        "Topology",
        "Guarantee",
    ),
    "Views": (
        "View",
        "Answer",
        "Position",
        "Snapshot",
        "RowList",
        "RowIterator",
        "UnreadableRow",
        "OnUnreadable",
        "Watch",
        "Change",
        "ChangesMissed",
        "TooSlow",
        "CopyReloaded",
        "Tail",
        "Following",
        "TailRecord",
    ),
    "Emitters": ("Emitter", "Ack", "BadToken"),
    "Kafka and settings": ("Kafka", "Settings"),
    "Extension points": (
        "Codec",
        "Decoded",
        "decode_each",
        "Stores",
        "Store",
        "CustomTasks",
        "CustomTask",
        "TaskServices",
        "CommitDue",
        "Prepared",
        "Written",
        "RecordBatch",
        "Committed",
        "NextOffset",
    ),
}
CALLS = (
    "Call",
    "Retry",
    "RateLimit",
    "RetryAfter",
    "CallFailed",
    "call_id",
    "call_ids",
    "call_each",
    "retried",
)
"""From `streamtable_calls`."""
FOR_THE_ENGINE = {
    "Group.companions",
    "Timer.table",
    "Timers.rows",
    "Call.begin",
    "Call.companions",
    "Call.finish",
    "Call.handled_by",
    "Call.settings",
    "Call.table",
    "Retry.pause_seconds",
    "Watch.offer",
    "Watch.reloaded",
    "Tail.start",
    "Tail.look",
    "Tail.forget",
    "Tail.read_back",
    "Tail.decoded",
    "Kafka.admin",
    "Kafka.cluster",
    "Context.each",
    "Context.index",
    "Context.stand",
    "Context.stand_at_row",
    "Context.work_on",
    "BatchContext.work_on",
    "BatchContext.whole",
    "KeyedTable.kept",
    "Sliding.starts",
}
FLOWS = (
    "Flow",
    "KeyedStream",
    "Grouped",
    "GroupedStream",
    "CogroupedStream",
    "KeyedTable",
    "GroupedTable",
    "Tumbling",
    "Hopping",
    "Sliding",
    "Session",
    "WindowedStream",
    "TimeWindowedStream",
    "SessionStream",
    "CogroupedWindows",
    "CogroupedSessions",
    "WindowedTable",
    "Window",
    "TimeWindow",
    "Assigned",
    "Windowed",
    "WindowedKey",
    "DayWindowKey",
    "SessionKey",
    "Description",
)
"""From `streamtable.flow`."""
CREATED_BY_PROGRAMS = {
    "Flow",
    "Tumbling",
    "Hopping",
    "Sliding",
    "Session",
    "Window",
    "Assigned",
    "Windowed",
    "WindowedKey",
    "DayWindowKey",
    "SessionKey",
}
"""Those of them that a program creates itself, so that their arguments are documented."""
MADE_BY_OTHERS = {
    "BatchContext",
    "Context",
    "View",
    "Watch",
    "Tail",
    "Following",
    "RowIterator",
    "Snapshot",
    "Processor",
    *(set(FLOWS) - CREATED_BY_PROGRAMS),
}
"""Classes whose instances are returned by a method, so that their arguments are not documented."""
REGISTRIES = (
    "Protobuf",
    "JsonSchema",
    "Confluent",
    "Apicurio",
    "Glue",
    "HttpRegistry",
    "Basic",
    "Bearer",
    "Tls",
    "TopicName",
    "RecordName",
    "TopicRecordName",
    "FileRegistry",
)
"""From `streamtable_codecs`."""
TESTING = ("Tester", "Emitted", "DeadLetter")
Documented = griffe.Object | griffe.Alias


def page() -> str:
    """Return the whole page."""
    both = [ROOT / "libs" / name / "src" for name in ("streamtable", "exactavro")]
    package = griffe.load("streamtable", search_paths=both, resolve_aliases=True, resolve_external=True)
    testing = griffe.load("streamtable_testing", search_paths=[ROOT / "libs" / "streamtable_testing" / "src"])
    codecs = griffe.load("streamtable_codecs", search_paths=[ROOT / "libs" / "streamtable_codecs" / "src"])
    calls = griffe.load("streamtable_calls", search_paths=[ROOT / "libs" / "streamtable_calls" / "src"])
    parts = [HEAD]
    for title, names in CHAPTERS.items():
        parts.append(f"## {title}\n")
        parts.extend(text for name in names for text in _entry(package[name], "###"))
    parts.append("## Flows\n\nFrom `streamtable.flow`. What flows are: [Flows](../explanation/flows.md).\n")
    parts.extend(text for name in FLOWS for text in _entry(package[f"flow.{name}"], "###"))
    parts.append(
        "## Protobuf, JSON Schema and registries\n\nFrom `streamtable_codecs`: `pip install streamtable-codecs`.\n"
    )
    parts.extend(text for name in REGISTRIES for text in _entry(codecs[name], "###"))
    parts.append(
        "## Calls\n\nFrom `streamtable_calls`. How they are used: [Call an API](../how-to/call-an-api.md).\n"
    )
    parts.extend(text for name in CALLS for text in _entry(calls[name], "###"))
    parts.append("## Testing\n\nFrom `streamtable_testing`: `pip install streamtable[testing]`.\n")
    parts.extend(text for name in TESTING for text in _entry(testing[name], "###"))
    return "\n".join(parts).rstrip() + "\n"


def _entry(each: Documented, level: str, owner: str = "") -> Iterator[str]:
    target = each.final_target if isinstance(each, griffe.Alias) else each
    yield f"{level} {owner}{each.name}\n"
    yield f"```python\n{owner}{_signature(target)}\n```\n"
    yield from _text(target)
    if isinstance(target, griffe.Class):
        if parent := _parent_on_page(target):
            yield f"It has the methods of [`{parent}`](#{parent.lower()}) too.\n"
        for constant in target.attributes.values():
            if constant.docstring is not None and "property" not in constant.labels:
                yield f"- `{each.name}.{constant.name}`: {_line(constant.docstring.value)}"
        if plain := _plain_attributes(target):
            yield f"\nAttributes: {', '.join(plain)}."
        yield ""
        for member in _public_members(target):
            yield from _entry(member, level + "#", f"{each.name}.")


def _plain_attributes(each: griffe.Class) -> list[str]:
    """Return fields and properties without a docstring, own and inherited."""
    parameters = (
        set() if "NamedTuple" in map(str, each.bases) else {argument.name for argument in each.parameters}
    )
    return [
        f"`{name}: {member.annotation}`"
        for name, alias in each.all_members.items()
        if isinstance(
            member := alias.final_target if isinstance(alias, griffe.Alias) else alias, griffe.Attribute
        )
        and not name.startswith("_")
        and name not in parameters
        and member.docstring is None
        and ("property" in member.labels or member.value is None)
        and not str(member.annotation).startswith("ClassVar")
    ]


def _parent_on_page(each: griffe.Class) -> str | None:
    """Return the class on the page that this one extends, whose methods are not listed a second time."""
    return next((base.name for base in each.mro() if base.name in {*FLOWS, "Aggregate"}), None)


def _public_members(each: griffe.Class) -> Iterable[Documented]:
    """Yield own and inherited methods and properties with a docstring, in source order."""
    members = each.members if _parent_on_page(each) else each.all_members
    return [
        member
        for member in members.values()
        if member.is_public
        and not member.name.startswith("_")
        and member.docstring is not None
        and not member.docstring.value.startswith("See `ports.")  # for authors of codecs
        and f"{each.name}.{member.name}" not in FOR_THE_ENGINE
        and (member.is_function or "property" in member.labels)
    ]


def _signature(target: griffe.Object) -> str:
    match target:
        case griffe.Function():
            return f"{target.name}{_arguments(target.parameters)} -> {target.returns}"
        case griffe.Class():
            hidden = _is_enum(target) or target.name in MADE_BY_OTHERS
            return f"{target.name}{'' if hidden else _arguments(target.parameters)}"
        case griffe.Attribute():
            return f"{target.name}: {target.annotation}"
        case _:
            sys.exit(f"{target.path}: a {target.kind.value} has no place on the page")


def _is_enum(target: griffe.Class) -> bool:
    return any(str(base) in {"Enum", "StrEnum"} for base in target.bases)


def _arguments(parameters: griffe.Parameters) -> str:
    shown, keyword_only = [], False
    for each in parameters:
        if each.name in {"self", "cls"}:
            continue
        if each.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            keyword_only = True
            shown.append("*")
        star = "*" if each.kind is griffe.ParameterKind.var_positional else ""
        text = f"{star}{each.name}" + (f": {each.annotation}" if each.annotation is not None else "")
        shown.append(text if star or each.default is None else f"{text} = {_default(str(each.default))}")
    line = f"({', '.join(shown)})"
    return line if len(line) <= 90 else "(\n    " + ",\n    ".join(shown) + ",\n)"  # noqa: PLR2004 - a line of the page


def _default(text: str) -> str:
    """Return a default as the reader of the page may write it, that of a setting by its value."""
    setting = re.fullmatch(r"default_of\(['\"](\w+)['\"]\)", text)
    return text if setting is None else repr(default_of(setting[1]))


def _text(each: Documented) -> Iterator[str]:
    """Yield the docstring, with its sections as lists."""
    if each.docstring is None:
        return
    for section in each.docstring.parse("google", warnings=False):
        match section:
            case griffe.DocstringSectionText():
                yield f"{_prose(section.value)}\n"
            case griffe.DocstringSectionParameters() if each.name in MADE_BY_OTHERS:
                continue
            case griffe.DocstringSectionParameters() | griffe.DocstringSectionAttributes():
                yield from (f"- `{item.name}`: {_line(item.description)}" for item in section.value)
                yield ""
            case griffe.DocstringSectionRaises():
                yield from (
                    f"- raises `{item.annotation}`: {_line(item.description)}" for item in section.value
                )
                yield ""
            case griffe.DocstringSectionReturns():
                yield f"Returns {_line(' '.join(item.description for item in section.value))}\n"
            case _:
                sys.exit(f"{each.path}: a docstring section of kind {section.kind.value} is not known here")


def _prose(text: str) -> str:
    """Return a docstring's text; indented blocks become code."""
    blocks = []
    for block in text.strip().split("\n\n"):
        code = all(line.startswith("    ") for line in block.splitlines())
        blocks.append(f"```python\n{textwrap.dedent(block).strip()}\n```" if code else block)
    return "\n\n".join(blocks)


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(page())

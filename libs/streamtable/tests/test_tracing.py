"""The traced spans, and their context in the headers of records, seen through the Tester, which runs the same engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from streamtable import Context, Group, Input, Long, OnError, Output, Persist, Stream, String
from streamtable.base.tracing import CONTEXTS_MAX, UNTRACED, Tracer, carrying, contexts, is_context, is_kept
from streamtable.base.types import Headers, RecordBatch
from streamtable_testing import Tester

CLICKS = Stream("clicks", String(), Long())
COUNTED = Stream("counted", String(), Long())


def context(number: int, flags: str = "01") -> bytes:
    return f"00-{number:032x}-{number:016x}-{flags}".encode()


@dataclass
class RecordedSpan:
    """A span: `sources` are the contexts that it comes from."""

    what: str
    sources: list[bytes | None]
    headers: Headers
    facts: dict[str, Any] = field(default_factory=dict)
    failure: BaseException | None = None
    ended: bool = False

    def note(self, **facts: Any) -> None:
        self.facts |= facts

    def end(self, failure: BaseException | None = None) -> None:
        assert not self.ended
        self.failure, self.ended = failure, True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)


class Listener:
    """A tracer that keeps its spans. `keeps`: the kinds of work whose context goes with the records."""

    def __init__(self, *keeps: str) -> None:
        self.keeps = keeps or ("send", "process", "commit", "apply")
        self.spans: list[RecordedSpan] = []

    def send(self, topic: str) -> RecordedSpan:
        return self._record("send", [])

    def process(self, group: str, batches: Sequence[RecordBatch]) -> RecordedSpan:
        return self._record("process", contexts(batches))

    def commit(self, group: str, sources: Sequence[Headers]) -> RecordedSpan:
        return self._record("commit", sources)

    def apply(self, view: str, records: RecordBatch) -> RecordedSpan:
        return self._record("apply", contexts([records]))

    def ask(self, store: str, operation: str, keys: int) -> RecordedSpan:
        return self._record(operation, [])

    def of(self, what: str) -> list[RecordedSpan]:
        return [span for span in self.spans if span.what == what]

    def _record(self, what: str, sources: Sequence[Headers]) -> RecordedSpan:
        own = (("traceparent", context(len(self.spans) + 1)),) if what in self.keeps else ()
        span = RecordedSpan(what, [value for ((_, value),) in sources], own)
        self.spans.append(span)
        return span


def count(ctx: Context[str, int], click: int) -> None:
    if click < 0:
        raise ValueError("a click is one or more")
    ctx.set((ctx.value or 0) + click)
    ctx.emit(COUNTED, ctx.key, click)


COUNTS = Group("counts", Input(CLICKS, count), Output(COUNTED), Persist(Long()))


def traced(listener: Tracer) -> Iterator[Tester]:
    with Tester(partitions=1) as tester:
        tester.kafka.shared_tracer = listener
        tester.run(COUNTS)
        yield tester


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def tester(listener: Listener) -> Iterator[Tester]:
    yield from traced(listener)


def headers_of(tester: Tester, topic: str) -> list[Headers]:
    found = tester.kafka.topics[topic].partitions[0].records
    return [tuple(record.headers() or ()) for record in found]


def test_an_event_is_followed_from_its_emitter_to_the_view(tester: Tester, listener: Listener) -> None:
    tester.view(COUNTS.table)
    listener.spans.clear()
    tester.emit(CLICKS, "alice", 3)
    send, process, commit, apply = listener.spans
    assert [span.what for span in listener.spans] == ["send", "process", "commit", "apply"]
    assert all(span.ended and span.failure is None for span in listener.spans)
    assert process.sources == [send.headers[0][1]]
    assert commit.sources == [process.headers[0][1]]
    assert apply.sources == [commit.headers[0][1]]
    assert send.facts == {"partition": 0, "offset": 0}


def test_a_commit_tells_its_outcome_its_offsets_and_its_size(tester: Tester, listener: Listener) -> None:
    tester.emit_many(CLICKS, [("alice", 3), ("bob", 1)])
    commit = listener.of("commit")[-1]
    assert commit.facts["outcome"] == "committed"
    assert "clicks[0]@2" in commit.facts["offsets"]
    assert (commit.facts["rows"], commit.facts["outputs"], commit.facts["dead_letters"]) == (2, 2, 0)
    assert commit.facts["bytes"] == 2 * (len("alice") + 8) + 2 * (len("bob") + 8)


def test_each_output_and_the_last_row_of_a_commit_carry_its_context(
    tester: Tester, listener: Listener
) -> None:
    tester.emit_many(CLICKS, [("alice", 3), ("bob", 1), ("alice", 1)])
    context = listener.of("commit")[-1].headers
    assert headers_of(tester, "counted") == [context] * 3
    assert headers_of(tester, COUNTS.table.name) == [(), context]


def test_a_context_that_a_handler_hands_on_is_not_replaced() -> None:
    given = (("id", b"1"), ("traceparent", context(7)))
    assert carrying(given, (("traceparent", context(8)),)) == given
    assert carrying(given[:1], (("traceparent", context(8)),)) == (given[0], ("traceparent", context(8)))


def test_a_trace_that_is_not_kept_leaves_no_context_in_any_record() -> None:
    for tester in traced(Listener("nothing")):
        tester.emit(CLICKS, "alice", 3)
        for topic in ("clicks", "counted", COUNTS.table.name):
            assert headers_of(tester, topic) == [()]


def test_without_a_tracer_nothing_is_added() -> None:
    for tester in traced(UNTRACED):
        tester.emit(CLICKS, "alice", 3, headers=[("id", b"1")])
        assert headers_of(tester, "clicks") == [(("id", b"1"),)]
        assert headers_of(tester, "counted") == [()]


def test_a_batch_is_linked_to_so_many_contexts_and_no_more(tester: Tester, listener: Listener) -> None:
    tester.emit_many(CLICKS, [("alice", 1)] * (CONTEXTS_MAX + 5))
    sent = [span.headers[0][1] for span in listener.of("send")]
    assert listener.of("process")[-1].sources == sent[:CONTEXTS_MAX]


def test_a_batch_whose_handler_fails_is_traced_as_failed_and_then_again(listener: Listener) -> None:
    lenient = Group(
        "lenient", Input(CLICKS, count, on_error=OnError.DEAD_LETTER), Output(COUNTED), Persist(Long())
    )
    with Tester(partitions=1) as tester:
        tester.kafka.shared_tracer = listener
        tester.run(lenient)
        tester.emit_many(CLICKS, [("alice", -1), ("alice", 2)])
        failed, again = listener.of("process")
        assert type(failed.failure).__name__ == "RewindNeeded"
        assert again.failure is None
        assert failed.sources == again.sources
        letter = tester.dead_letters(lenient)[0]
        # It keeps the context of the record that it was: where the story began.
        assert dict(letter.headers)["traceparent"] == listener.of("send")[0].headers[0][1]


def test_records_near_the_largest_size_can_carry_a_context_too(listener: Listener) -> None:
    texts = Stream("texts", String(), String())
    copies = Stream("copies", String(), String())

    def copy(ctx: Context[str, object], text: str) -> None:
        ctx.emit(copies, ctx.key, text)

    group = Group("copier", Input(texts, copy, on_error=OnError.DEAD_LETTER), Output(copies))
    with Tester(partitions=1) as tester:
        tester.kafka.shared_tracer = listener
        tester.run(group)
        most = tester.kafka.topics["copies"].info.max_message_bytes
        for size in range(most - 300, most - 100, 20):
            tester.emit_raw("texts", b"a", b"x" * size)
        assert len(tester.records(copies)) + len(tester.dead_letters(group)) == 10
        assert tester.records(copies)
        assert tester.dead_letters(group)


def test_a_malformed_context_counts_as_none() -> None:
    good = context(1)
    assert is_context(good)
    assert is_kept(good)
    assert is_context(context(1, "00"))
    assert not is_kept(context(1, "00"))
    assert not is_kept(None)
    bad = [
        b"",
        good[:-1],
        good + b"0",
        good.upper().replace(b"0", b"A"),
        b"ff" + good[2:],
        context(0),
        good + b"\n",
    ]
    assert not any(map(is_context, bad))
    assert is_context(b"01" + good[2:] + b"-of a later version")


def test_the_tracer_of_those_who_have_none_keeps_nothing() -> None:
    with UNTRACED.commit("group", []) as span:
        span.note(outcome="committed")
    assert span.headers == ()

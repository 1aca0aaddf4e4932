"""Bad requests that only tweet-reach's query service and the console can get; what all services share is asked of click-count.

URLs are keys of one; names of topics and hexadecimal keys are keys of the other.
"""

import json

import pytest
from tests.hostile.raw_requests import HOST, JSON, get, judge, post
from tests.hostile.rest_world import CONSOLE_KEY, Service

from localkafka.waiting import wait_until

KEY = f"Authorization: Bearer {CONSOLE_KEY}\r\n".encode()

REACH_CASES: dict[str, tuple[bytes, set[int]]] = {
    "no URL": (get(b"/reach"), {422}),
    "URL empty": (get(b"/reach?url="), {422}),
    "URL without a value": (get(b"/reach?url"), {422}),
    "two URLs": (get(b"/reach?url=evil&url=evil"), {422}),
    "URL of 2049 characters": (get(b"/reach?url=" + b"e" * 2049), {422}),
    "URL of 26 KB": (get(b"/reach?url=" + b"e" * 26_000), {414}),
    "URL not escaped": (get(b"/reach?url=https://evil/?a=b&c=d"), {422}),
    "NUL in the URL": (get(b"/reach?url=evil%00"), {400}),
    "line end in the URL": (get(b"/reach?url=evil%0d%0aSet-Cookie:%20evil"), {400, 422}),
    "control character in the URL": (get(b"/reach?url=evil%c2%85"), {400, 422}),
    "no UTF-8 in the URL": (get(b"/reach?url=evil%ff"), {400}),
    "surrogate in the URL": (get(b"/reach?url=evil%ed%a0%80"), {400}),
    "replacement character in the URL": (get(b"/reach?url=evil%ef%bf%bd"), {422}),
    "unknown parameter": (get(b"/reach?url=alice&evil=1"), {422}),
    "changes of no URL": (get(b"/reach/events"), {422}),
    "changes of a URL that is none": (get(b"/reach/events?url=evil%ef%bf%bd"), {422}),
    "top of 0": (get(b"/reach/top?limit=0"), {422}),
    "top of 2^63": (get(b"/reach/top?limit=9223372036854775808"), {422}),
    "top with a parameter of another": (get(b"/reach/top?url=evil"), {422}),
    "search without words": (get(b"/tweets"), {422}),
    "search for a line end": (get(b"/tweets?words=evil%0a"), {400, 422}),
    "search for 281 characters": (get(b"/tweets?words=" + b"e" * 281), {422}),
    "search where nothing can search": (get(b"/tweets?words=evil"), {501}),
    "POST": (post(b"{}", path=b"/reach"), {405}),
}


def asked(path: bytes) -> bytes:
    return get(path, KEY)


def replayed(body: bytes, group: bytes = b"{group}") -> bytes:
    return post(body, JSON + KEY, b"/api/letters/" + group + b"/replay")


# {topic}, {table} and {group} stand for what there is.
CONSOLE_CASES: dict[str, tuple[bytes, set[int]]] = {
    "no key": (get(b"/api/fleet"), {401}),
    "another key": (get(b"/api/fleet", b"Authorization: Bearer evil\r\n"), {401}),
    "no such topic": (asked(b"/api/topics/evil/records"), {404}),
    "topic up": (asked(b"/api/topics/../evil"), {404}),
    "topic up, encoded": (asked(b"/api/topics/..%2f..%2fevil/records"), {400, 404}),
    "NUL in a topic": (asked(b"/api/topics/evil%00/records"), {400}),
    "topic with a space": (asked(b"/api/topics/evil%20/records"), {422}),
    "topic of 250 characters": (asked(b"/api/topics/" + b"e" * 250 + b"/records"), {422}),
    "partition -1": (asked(b"/api/topics/{topic}/records?partition=-1"), {422}),
    "partition that there is not": (asked(b"/api/topics/{topic}/records?partition=99"), {404}),
    "partition 2^31": (asked(b"/api/topics/{topic}/records?partition=2147483648"), {422}),
    "offset 2^63": (asked(b"/api/topics/{topic}/records?offset=9223372036854775808"), {422}),
    "time before 1970": (asked(b"/api/topics/{topic}/records?since=-1"), {422}),
    "time with a point": (asked(b"/api/topics/{topic}/records?since=1.5"), {422}),
    "offset and time": (asked(b"/api/topics/{topic}/records?offset=1&since=1"), {422}),
    "records 501": (asked(b"/api/topics/{topic}/records?limit=501"), {422}),
    "rows of another topic than a table": (asked(b"/api/tables/{group}-retry/rows"), {422}),
    "changes of another topic than a table": (asked(b"/api/tables/{group}-retry/events"), {422}),
    "rows of no topic": (asked(b"/api/tables/evil/rows"), {404}),
    "half a byte": (asked(b"/api/tables/{table}/rows?after=abc"), {422}),
    "no hexadecimal digits": (asked(b"/api/tables/{table}/rows?after=evil"), {422}),
    "key of 4097 bytes": (asked(b"/api/tables/{table}/rows?after=" + b"ee" * 4097), {422}),
    "key of 8 KB": (asked(b"/api/tables/{table}/rows?after=" + b"ee" * 8192), {414, 431}),
    "prefix with a control character": (asked(b"/api/tables/{table}/rows?prefix=evil%1f"), {400, 422}),
    "prefix that is no UTF-8": (asked(b"/api/tables/{table}/rows?prefix=evil%ff"), {400}),
    "letters of no group": (asked(b"/api/letters/evil"), {404}),
    "letters of a group with too long a name": (asked(b"/api/letters/" + b"e" * 249), {404}),
    "run with a slash": (asked(b"/api/runs/evil%2fevil"), {400, 404}),
    "no such run": (asked(b"/api/runs/evil"), {404}),
    "replay without a body": (replayed(b""), {422}),
    "replay of nothing": (replayed(b'{"letters": []}'), {422}),
    "replay of an id that is no letter's": (replayed(b'{"letters": ["evil"]}'), {422}),
    "replay of a letter in other digits": (replayed('{"letters": ["1:\u0661"]}'.encode()), {422}),
    "replay of 501 letters": (replayed(b'{"letters": [' + b",".join([b'"0:0"'] * 501) + b"]}"), {422}),
    "replay of a letter that is gone": (replayed(b'{"letters": ["0:999"]}'), {409}),
    "replay from a partition that there is not": (replayed(b'{"letters": ["999999999:0"]}'), {404}),
    "replay with an unknown member": (replayed(b'{"letters": ["0:0"], "evil": 1}'), {422}),
    "replay with text for true": (replayed(b'{"letters": ["0:0"], "again": "evil"}'), {422}),
    "replay of no group": (replayed(b'{"letters": ["0:0"]}', b"evil"), {404}),
    "replay of a group with too long a name": (replayed(b'{"letters": ["0:0"]}', b"e" * 249), {404}),
    "replay by GET": (asked(b"/api/letters/{group}/replay"), {405}),
    "HTTP/1.0": (b"GET /api/fleet HTTP/1.0\r\n" + HOST + KEY + b"\r\n", {200}),
}


@pytest.mark.parametrize("case", REACH_CASES)
def test_the_query_service_of_reaches_answers_a_bad_request_as_foreseen(reaches: Service, case: str) -> None:
    request, statuses = REACH_CASES[case]
    assert len(judge(reaches, request, statuses, "/reach?url=alice")) == 1


@pytest.mark.parametrize("case", CONSOLE_CASES)
def test_the_console_answers_a_bad_request_as_foreseen(console: Service, case: str) -> None:
    request, statuses = CONSOLE_CASES[case]
    for name, known in console.known.items():
        request = request.replace(b"{%s}" % name.encode(), known.encode())
    assert len(judge(console, request, statuses, "/readyz")) == 1


def test_the_console_notes_who_looks_at_records_and_who_replays_letters(console: Service) -> None:
    topic, group = console.known["topic"], console.known["group"]
    console.raw(asked(f"/api/topics/{topic}/records?limit=1".encode()))
    console.raw(asked(b"/api/fleet"))
    console.raw(replayed(b'{"letters": ["0:99"]}', group.encode()))

    def audited() -> list[tuple[str, str, str, int]]:
        lines = [json.loads(line) for line in console.lines if '"event": "audit"' in line]
        return [(each["caller"], each["method"], each["path"], each["status"]) for each in lines]

    expected = [
        ("me", "GET", f"/api/topics/{topic}/records", 200),
        ("me", "POST", f"/api/letters/{group}/replay", 409),
    ]
    wait_until(lambda: audited()[-2:] == expected)  # a line comes after its answer
    assert "/api/fleet" not in {path for _, _, path, _ in audited()}

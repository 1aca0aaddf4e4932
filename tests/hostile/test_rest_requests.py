"""Every bad request gets an answer that was foreseen: no failure of the service, no trace, no echo, and the next honest
request is served. Over raw sockets, because client libraries would not let most of these through.
"""

import gzip
import json
from collections.abc import Iterable
from typing import Any

import pytest
from tests.hostile.raw_requests import EVIL, HOST, JSON, STATUS_LINE, get, judge, post
from tests.hostile.rest_world import ROWS, Service

CLICK = b'{"user_id": "alice", "url": "https://example.org/"}'
ALICE = b"GET /clicks/alice HTTP/1.1\r\n" + HOST + b"\r\n"


def chunked(parts: Iterable[bytes], headers: bytes = JSON) -> bytes:
    body = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts)
    head = b"POST /clicks HTTP/1.1\r\n" + HOST + headers + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + body


def click(**members: Any) -> bytes:
    return json.dumps({"user_id": "alice", "url": "x", **members}).encode()


QUERY_CASES: dict[str, tuple[bytes, set[int]]] = {
    "no key": (get(b"/clicks/"), {404}),
    "empty key": (get(b"/clicks//events"), {404}),
    "NUL in the key": (get(b"/clicks/evil%00"), {400}),
    "no UTF-8 in the key": (get(b"/clicks/evil%ff"), {400}),
    "raw bytes over 127 in the key": (get(b"/clicks/evil\xff"), {400}),
    "raw space in the key": (get(b"/clicks/evil x"), {400}),
    "key up": (get(b"/clicks/.."), {422}),
    "key up, encoded": (get(b"/clicks/..%2fevil"), {400}),
    "key up twice, encoded": (get(b"/clicks/%2e%2e%2f%2e%2e%2fevil"), {400}),
    "key in double encoding": (get(b"/clicks/%252e%252e%252fevil"), {404}),
    "overlong UTF-8": (get(b"/clicks/%c0%aeevil"), {400}),
    "overlong slash": (get(b"/clicks/%c0%afevil"), {400}),
    "surrogate in UTF-8": (get(b"/clicks/%ed%a0%80evil"), {400}),
    "beyond Unicode": (get(b"/clicks/%f4%90%80%80evil"), {400}),
    "replacement character": (get(b"/clicks/%ef%bf%bdevil"), {422}),
    "half an escape": (get(b"/clicks/evil%4"), {404}),
    "no escape": (get(b"/clicks/evil%zz"), {404}),
    "line end in the key": (get(b"/clicks/evil%0d%0aSet-Cookie:%20evil"), {400}),
    "key of 129 characters": (get(b"/clicks/" + b"e" * 129), {422}),
    "path of 64 KB": (get(b"/clicks/" + b"e" * 65536), {414, 431}),
    "fragment": (get(b"/clicks/alice#evil"), {404}),
    "query in front of another": (get(b"/clicks/alice?evil?evil"), {422}),
    "limit 0": (get(b"/clicks?limit=0"), {422}),
    "limit -1": (get(b"/clicks?limit=-1"), {422}),
    "limit 1e3": (get(b"/clicks?limit=1e3"), {422}),
    "limit 2^63": (get(b"/clicks?limit=9223372036854775808"), {422}),
    "limit of 26000 digits": (get(b"/clicks?limit=" + b"9" * 26_000), {414}),
    "limit of 25000 digits": (get(b"/clicks?limit=" + b"9" * 25_000), {422}),
    "limit in full-width digits": (get(b"/clicks?limit=%ef%bc%91"), {422}),
    "limit in Arabic digits": (get(b"/clicks?limit=%d9%a1"), {422}),
    "limit with a space": (get(b"/clicks?limit=+1"), {422}),
    "limit repeated": (get(b"/clicks?limit=1&limit=2"), {422}),
    "limit as a list": (get(b"/clicks?limit[]=1"), {422}),
    "limit without a value": (get(b"/clicks?limit"), {422}),
    "since nan": (get(b"/clicks?since=nan"), {422}),
    "since inf": (get(b"/clicks?since=inf"), {422}),
    "since 1e400": (get(b"/clicks?since=1e400"), {422}),
    "unknown parameter": (get(b"/clicks?evil=evil"), {422}),
    "a thousand parameters": (get(b"/clicks?" + b"&".join(b"e%d" % n for n in range(600))), {422}),
    "no UTF-8 in a parameter": (get(b"/clicks?prefix=evil%ff"), {400}),
    "NUL in a parameter": (get(b"/clicks?prefix=evil%00"), {400}),
    "prefix too long": (get(b"/clicks?prefix=" + b"e" * 129), {422}),
    "cursor empty": (get(b"/clicks?cursor="), {422}),
    "cursor made up": (get(b"/clicks?cursor=" + b"A" * 44), {422}),
    "cursor no base64": (get(b"/clicks?cursor=%7Bevil%7D"), {422}),
    "cursor beyond ASCII": (get(b"/clicks?cursor=%c3%a9evil"), {422}),
    "cursor of 4000": (get(b"/clicks?cursor=" + b"A" * 4000), {422}),
    "top with a parameter of another": (get(b"/top?prefix=evil"), {422}),
    "HEAD": (get(b"/clicks/alice", method=b"HEAD"), {405}),
    "OPTIONS": (get(b"/clicks/alice", method=b"OPTIONS"), {405}),
    "OPTIONS of everything": (get(b"*", method=b"OPTIONS"), {404}),
    "TRACE": (get(b"/clicks/alice", b"X: evil\r\n", b"TRACE"), {405}),
    "PUT": (get(b"/clicks/alice", method=b"PUT"), {405}),
    "DELETE": (get(b"/clicks/alice", method=b"DELETE"), {405}),
    "CONNECT": (get(b"evil:443", method=b"CONNECT"), {404}),
    "a method in small letters": (get(b"/clicks/alice", method=b"get"), {405}),
    "an invented method": (get(b"/clicks/alice", method=b"EVIL"), {405}),
    "a method of 4 KB": (get(b"/clicks/alice", method=b"E" * 4096), {405}),
    "no method": (get(b"/clicks/alice", method=b""), {400}),
    "another server's address": (get(b"http://evil/clicks/alice"), {404}),
    "path without a slash": (get(b"evil"), {404}),
    "two slashes": (get(b"//evil/clicks"), {404}),
    "Upgrade to websocket": (
        get(b"/clicks/alice", b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"),
        {200},
    ),
    "Upgrade to HTTP/2": (
        get(b"/clicks/alice", b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
        {200},
    ),
    "Range": (get(b"/clicks", b"Range: bytes=0-0,1-1," + b"0-," * 500 + b"0-\r\n"), {200}),
    "If-None-Match of 8 KB": (get(b"/clicks/alice", b"If-None-Match: " + b'"evil",' * 1100 + b"\r\n"), {200}),
    "Accept nothing": (get(b"/clicks/alice", b"Accept: evil/evil\r\n"), {200}),
    "Expect the impossible": (get(b"/clicks/alice", b"Expect: evil\r\n"), {200}),
    "forwarded": (get(b"/clicks/alice", b"X-Forwarded-Host: evil\r\nForwarded: host=evil\r\n"), {200}),
    "HTTP/0.9": (b"GET /clicks/alice\r\n\r\n", {400}),
    "HTTP/1.0 without Host": (b"GET /clicks/alice HTTP/1.0\r\n\r\n", {200}),
    "HTTP/2.0 in words": (b"GET /clicks/alice HTTP/2.0\r\n" + HOST + b"\r\n", {505}),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {505}),
    "HTTP/9.9": (b"GET /clicks/alice HTTP/9.9\r\n" + HOST + b"\r\n", {505}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n", {400}),
    "random bytes": (bytes(range(256)) * 4 + b"\r\n\r\n", {400}),
    "no Host": (b"GET /clicks/alice HTTP/1.1\r\n\r\n", {400}),
    "two Hosts": (get(b"/clicks/alice", b"Host: evil\r\n"), {400}),
    "header without a colon": (get(b"/clicks/alice", b"evil\r\n"), {400}),
    "header without a name": (get(b"/clicks/alice", b": evil\r\n"), {400}),
    "header name with a space": (get(b"/clicks/alice", b"X evil: 1\r\n"), {400}),
    "NUL in a header": (get(b"/clicks/alice", b"X: evil\x00\r\n"), {400}),
    "bare CR in a header": (get(b"/clicks/alice", b"X: evil\rY: 1\r\n"), {400}),
    "header of 15 KB": (get(b"/clicks/alice", b"X: " + b"e" * 15_000 + b"\r\n"), {200}),
    "header of 64 KB": (get(b"/clicks/alice", b"X: " + b"e" * 65536 + b"\r\n"), {431}),
    "1000 headers": (get(b"/clicks/alice", b"".join(b"X%d: evil\r\n" % n for n in range(1000))), {431}),
    "two credentials": (get(b"/clicks/alice", b"Authorization: a\r\nAuthorization: b\r\n"), {400}),
    "body of a GET without a type": (
        get(b"/clicks/alice", b"Content-Length: 4\r\n") + EVIL,
        {415},
    ),
    "body of a GET that is a request": (
        get(b"/clicks/alice", JSON + f"Content-Length: {len(ALICE)}\r\n".encode()) + ALICE,
        {200},
    ),
}

FRAMING = {
    "two Content-Lengths": (b"Content-Length: 3\r\nContent-Length: 5\r\n", {400}),
    "two Content-Lengths in one": (b"Content-Length: 3, 5\r\n", {400}),
    "Content-Length and Transfer-Encoding": (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", {400}),
    "Transfer-Encoding and Content-Length": (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", {400}),
    "two Transfer-Encodings": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", {501}),
    "chunked twice": (b"Transfer-Encoding: chunked, chunked\r\n", {501}),
    "chunked and another": (b"Transfer-Encoding: chunked, identity\r\n", {501}),
    "unknown Transfer-Encoding": (b"Transfer-Encoding: xchunked\r\n", {501}),
    "Transfer-Encoding with a tab": (b"Transfer-Encoding:\x0bchunked\r\n", {400, 501}),
    "space before the colon": (b"Transfer-Encoding : chunked\r\n", {400}),
    "Transfer-Encoding on a folded line": (
        b"X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        {422},
    ),
    "negative Content-Length": (b"Content-Length: -1\r\n", {400}),
    "Content-Length with a sign": (b"Content-Length: +3\r\n", {400}),
    "Content-Length in hexadecimal": (b"Content-Length: 0x3\r\n", {400}),
    "Content-Length 1e3": (b"Content-Length: 1e3\r\n", {400}),
    "Content-Length empty": (b"Content-Length: \r\n", {400}),
    "Content-Length 2^64": (b"Content-Length: 18446744073709551616\r\n", {400, 413}),
    "Content-Length of 200 digits": (b"Content-Length: " + b"9" * 200 + b"\r\n", {400}),
}

EMITTER_CASES: dict[str, tuple[bytes, set[int]]] = {
    "body of 0 bytes": (post(b""), {422}),
    "body of 200 MB announced": (
        b"POST /clicks HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 209715200\r\n\r\n" + b" " * 1000,
        {413},
    ),
    "body of 1 MB": (post(b" " * 1_000_000), {413}),
    "chunked without end": (chunked(b" " * 8192 for _ in range(100)), {413}),
    "chunk of a bad size": (chunked([]) + b"zz\r\nevil\r\n0\r\n\r\n", {400}),
    "chunk of a negative size": (chunked([]) + b"-1\r\nevil\r\n0\r\n\r\n", {400}),
    "chunk of a huge size": (chunked([]) + b"f" * 30 + b"\r\nevil\r\n0\r\n\r\n", {400}),
    "chunk that is longer than it says": (chunked([]) + b"2\r\nevil\r\n0\r\n\r\n", {400}),
    "chunk extension of 64 KB": (
        chunked([]) + b"2;" + b"e" * 65536 + b"\r\n{}\r\n0\r\n\r\n",
        {400, 422, 431},
    ),
    "trailers": (chunked([CLICK]) + b"0\r\nContent-Length: 3\r\nevil: evil\r\n\r\n", {201}),
    "gzip bomb": (post(gzip.compress(bytes(10**7)), JSON + b"Content-Encoding: gzip\r\n"), {415}),
    "gzip undeclared": (post(gzip.compress(CLICK)), {422}),
    "no content type": (post(CLICK, b""), {415}),
    "text": (post(CLICK, b"Content-Type: text/plain\r\n"), {415}),
    "form": (post(b"user_id=evil", b"Content-Type: application/x-www-form-urlencoded\r\n"), {415}),
    "multipart": (post(b"--evil--", b"Content-Type: multipart/form-data; boundary=evil\r\n"), {415}),
    "JSON of another kind": (post(CLICK, b"Content-Type: application/evil+json\r\n"), {415}),
    "two content types": (post(CLICK, JSON + b"Content-Type: text/plain\r\n"), {400}),
    "BOM": (post(b"\xef\xbb\xbf" + CLICK), {422}),
    "UTF-16": (post(CLICK.decode().encode("utf-16")), {422}),
    "no UTF-8": (post(b'{"user_id": "evil\xff", "url": "x"}'), {422}),
    "NaN": (post(b'{"user_id": "evil", "url": "x", "at": NaN}'), {422}),
    "Infinity": (post(b'{"user_id": "evil", "url": "x", "at": Infinity}'), {422}),
    "1e400": (post(b'{"user_id": "evil", "url": "x", "at": 1e400}'), {422}),
    "time with a point": (post(b'{"user_id": "evil", "url": "x", "at": 1.5}'), {422}),
    "time below zero": (post(click(at=-1)), {422}),
    "time 2^63": (post(click(at=2**63)), {422}),
    "time of 5000 digits": (post(b'{"user_id": "a", "url": "x", "at": ' + b"9" * 5000 + b"}"), {422}),
    "time as text": (post(click(at="1")), {422}),
    "true for a number": (post(click(at=True)), {422}),
    "duplicate names": (post(b'{"user_id": "alice", "user_id": "evil", "url": "x"}'), {422}),
    "duplicate names by escapes": (post(b'{"user_id": "alice", "user\\u005fid": "evil", "url": "x"}'), {422}),
    "nesting of 100 k": (post(b"[" * 100_000 + b"]" * 100_000), {422}),
    "nesting of objects": (post(b'{"evil":' * 50_000 + b"1" + b"}" * 50_000), {422}),
    "lone surrogate": (post(b'{"user_id": "evil\\ud800", "url": "x"}'), {422}),
    "NUL in a key": (post(b'{"user_id": "evil\\u0000", "url": "x"}'), {422}),
    "slash in a key": (post(click(user_id="evil/evil")), {422}),
    "key of 129 characters": (post(click(user_id="e" * 129)), {422}),
    "empty key": (post(click(user_id="")), {422}),
    "key null": (post(click(user_id=None)), {422}),
    "key up": (post(click(user_id="..")), {422}),
    "URL with a line end": (post(click(url="evil\r\nevil")), {422}),
    "id no UUID": (post(click(id="evil")), {422}),
    "id in braces": (post(click(id="{00000000-0000-0000-0000-000000000000}")), {422}),
    "unknown member": (post(click(evil="evil")), {422}),
    "member of the prototype": (post(b'{"__proto__": {"evil": 1}, "user_id": "alice", "url": "x"}'), {422}),
    "an empty list": (post(b"[]"), {422}),
    "1001 clicks": (post(b"[" + b",".join([b'{"user_id":"a","url":"x"}'] * 1001) + b"]"), {422}),
    "a list of lists": (post(b"[[[]]]"), {422}),
    "a number": (post(b"1"), {422}),
    "null": (post(b"null"), {422}),
    "text in JSON": (post(b'"evil"'), {422}),
    "two documents": (post(CLICK + CLICK), {422}),
    "half a document": (post(CLICK[:-5]), {422}),
    "comments": (post(b"/* evil */" + CLICK), {422}),
    "single quotes": (post(b"{'user_id': 'evil', 'url': 'x'}"), {422}),
    "an unknown parameter": (post(CLICK, path=b"/clicks?evil=1"), {422}),
    "PUT": (post(CLICK).replace(b"POST", b"PUT", 1), {405}),
    "GET": (get(b"/clicks"), {405}),
    **{
        name: (b"POST /clicks HTTP/1.1\r\n" + HOST + JSON + headers + b"\r\n{}\r\n0\r\n\r\n" + ALICE, status)
        for name, (headers, status) in FRAMING.items()
    },
}


@pytest.mark.parametrize("case", QUERY_CASES)
def test_the_query_service_answers_a_bad_request_as_foreseen(query: Service, case: str) -> None:
    request, statuses = QUERY_CASES[case]
    assert len(judge(query, request, statuses, "/clicks/alice")) == 1


@pytest.mark.parametrize("case", EMITTER_CASES)
def test_the_emitter_answers_a_bad_request_as_foreseen(emitter: Service, case: str) -> None:
    request, statuses = EMITTER_CASES[case]
    answers = judge(emitter, request, statuses, "/readyz")
    # What follows a request whose end is in doubt is not taken for a second one.
    assert b"200" not in answers[1:]


def test_requests_sent_in_one_go_are_answered_in_order(query: Service) -> None:
    paths = [b"/clicks/alice", b"/clicks/nobody", b"/clicks/bob", b"/clicks/%00", b"/livez"]
    request = b"".join(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n" for path in paths[:-1]) + get(
        paths[-1]
    )
    assert STATUS_LINE.findall(query.raw(request)) == [b"200", b"404", b"200", b"400", b"200"]


def test_a_thousand_requests_in_one_go_are_answered(query: Service) -> None:
    request = ALICE * 999 + get(b"/clicks/alice")
    assert STATUS_LINE.findall(query.raw(request, silence=60)) == [b"200"] * 1000
    query.check_sound()


@pytest.mark.parametrize(("user", "count"), [("é", ROWS["é"]), ("e\u0301", ROWS["e\u0301"])])
def test_users_that_look_alike_are_different_ones(query: Service, user: str, count: int) -> None:
    path = "".join(f"%{byte:02x}" for byte in f"{user}".encode())
    answer = query.raw(get(f"/clicks/{path}".encode()))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["count"] == count


def test_a_cursor_is_good_for_its_own_query_and_unchanged_only(query: Service) -> None:
    def page(query_string: str) -> tuple[int, Any]:
        answer = query.raw(get(f"/clicks?{query_string}".encode()))
        status = STATUS_LINE.match(answer)
        assert status is not None
        return int(status[1]), json.loads(answer.partition(b"\r\n\r\n")[2])

    cursor = page("limit=1&prefix=user-")[1]["next"]
    assert page(f"limit=1&prefix=user-&cursor={cursor}")[0] == 200
    assert page(f"limit=1&cursor={cursor}")[0] == 422
    assert page(f"limit=1&prefix=user&cursor={cursor}")[0] == 422
    for n in range(len(cursor)):
        assert page(f"limit=1&prefix=user-&cursor={cursor[:n]}")[0] == 422
    other = "A" if cursor[5] != "A" else "B"
    assert page(f"limit=1&prefix=user-&cursor={cursor[:5]}{other}{cursor[6:]}")[0] == 422
    query.check_sound()

import httpx
import pytest

from servicekit_testing import with_ids
from servicekit_testing.retries import Retries

EVENT = {"user_id": "alice", "url": "x"}
STORED = httpx.Response(200, json=[])
REFUSED = httpx.Response(503, json={"title": "Service Unavailable"})
UNKNOWN = httpx.Response(503, json={"unknown": ["1"], "accepted": []})


class Script(httpx.BaseTransport):
    """Answers requests with these answers and errors, one after the other."""

    def __init__(self, *steps: httpx.Response | httpx.TransportError) -> None:
        self.steps = list(steps)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        step = self.steps.pop(0)
        if isinstance(step, httpx.Response):
            return httpx.Response(step.status_code, content=step.content)
        raise step


def client_of(script: Script) -> httpx.Client:
    return httpx.Client(base_url="http://service", transport=Retries(script))


def cut() -> httpx.TransportError:
    return httpx.RemoteProtocolError("Server disconnected without sending a response.")


@pytest.mark.parametrize("first", [REFUSED, UNKNOWN, httpx.Response(504, json={}), cut()])
def test_a_read_is_repeated_until_it_is_answered(first: httpx.Response | httpx.TransportError) -> None:
    script = Script(first, STORED)
    assert client_of(script).get("/clicks").status_code == 200
    assert not script.steps


@pytest.mark.parametrize("first", [REFUSED, UNKNOWN, cut()])
def test_a_write_with_ids_is_repeated_until_it_is_stored(
    first: httpx.Response | httpx.TransportError,
) -> None:
    script = Script(first, STORED)
    assert client_of(script).post("/clicks", json=with_ids([EVENT])).status_code == 200
    assert not script.steps


def test_a_write_without_ids_is_repeated_only_if_nothing_was_stored() -> None:
    assert client_of(Script(REFUSED, STORED)).post("/clicks", json=EVENT).status_code == 200
    script = Script(UNKNOWN, cut())
    assert client_of(script).post("/clicks", json=EVENT).status_code == 503
    with pytest.raises(httpx.RemoteProtocolError):
        client_of(script).post("/clicks", json=EVENT)


def test_a_probe_is_answered_at_once() -> None:
    assert client_of(Script(REFUSED)).get("/readyz").status_code == 503


def test_a_service_that_is_gone_is_not_waited_for() -> None:
    with pytest.raises(httpx.ConnectError):
        client_of(Script(httpx.ConnectError("connection refused"))).get("/clicks")


def test_events_have_ids_of_their_own() -> None:
    first, second = with_ids([EVENT, EVENT])
    assert {**EVENT, "id": first["id"]} == first
    assert first["id"] != second["id"]
    assert with_ids({**EVENT, "id": "mine"})["id"] == "mine"

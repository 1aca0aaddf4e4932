"""URLs of stores: parsing, rejected URLs, and secrets that are never shown."""

import builtins
import re
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from microbatch.store_settings import FIELD_TYPES, FORMS, PARAMETERS, StoreSettings, store_from
from microbatch.stores.memory import MemoryDriver
from streamtable.errors import ConfigurationError, RetryLater

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "stores.md"
ELASTIC, CASSANDRA = "elasticsearch+https://h/rows", "cassandra://h/shop/rows"


def refusal(url: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        StoreSettings.parse(url)
    assert refused.value.__cause__ is None
    return str(refused.value)


def test_a_store_in_memory_belongs_to_one_driver() -> None:
    one, other = store_from("memory:", "t"), store_from("memory:", "t")
    assert isinstance(one, MemoryDriver)
    one.write({b"a": b"1"}, 1, 1)
    assert other.read([b"a"], 1).rows == {}


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        ("redis://h", "redis://h:6379/", {"ttl": None, "replicas": 0, "ca": None}),
        (
            "rediss://h:1/3?ttl=60&replicas=2&ca=%2Fa%20b",
            "rediss://h:1/3",
            {"ttl": 60, "replicas": 2, "ca": "/a b"},
        ),
        ("redis://[::1]:7", "redis://[::1]:7/", {}),
        (
            "elasticsearch+https://a,b:1/rows?fields=url:keyword,text:text&shards=3&replicas=2&refresh=5",
            "elasticsearch+https://a:9200,b:1/rows",
            {"fields": {"url": "keyword", "text": "text"}, "shards": 3, "replicas": 2, "refresh": 5},
        ),
        (
            "cassandra://a,b:9/shop/rows?replicas=dc1:3,dc2:2&datacenter=dc1&ttl=9&forgets_after=86400",
            "cassandra://a:9,b:9/shop/rows",
            {"replicas": {"dc1": 3, "dc2": 2}, "datacenter": "dc1", "ttl": 9, "forgets_after": 86_400},
        ),
    ],
)
def test_a_url_has_hosts_a_path_and_parameters_with_defaults(
    url: str, shown: str, expected: Mapping[str, Any]
) -> None:
    settings = StoreSettings.parse(url)
    assert str(settings) == shown
    assert {name: settings.parameters[name] for name in expected} == expected
    assert settings.parameters.keys() == PARAMETERS[settings.kind].keys()


def test_user_and_password_are_decoded_and_never_shown() -> None:
    settings = StoreSettings.parse("rediss://me:p%40ss%2Fword@h/0")
    assert (settings.user, settings.password) == ("me", "p@ss/word")
    assert "ss" not in f"{settings} {settings!r}".replace("rediss", "").replace("password", "")
    keyed = StoreSettings.parse(f"{ELASTIC}?api_key=hunter2")
    assert "hunter2" not in f"{keyed} {keyed!r}"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "no kind of store; allowed are embedded:; memory:; redis://"),
        ("   ", "no kind of store"),
        ("http://h:9200/rows", "'http' is no kind of store"),
        ("REDIS://h", "no kind of store"),
        ("memory://", "'memory' is no kind of store"),
        ("redis:h", "expected redis://"),
        ("redis://", "expected redis://"),
        ("redis://h:0", "1 to 65535"),
        ("redis://h:65536", "1 to 65535"),
        ("redis://h:port", "expected redis://"),
        ("redis://a,b", "a cluster of Redis is not supported"),
        ("redis://h/x", "number of a database"),
        ("redis://h/0#x", "written as %40"),
        ("redis://h/0?ttl=0", "ttl='0': expected a whole number from 1"),
        ("redis://h/0?ttl=1e9", "a whole number"),
        (
            "redis://h/0?ttl=1&ttl=2",
            "'ttl' is not a parameter, has no value, or is repeated: ttl, replicas, ca",
        ),
        ("redis://h/0?ttl", "has no value"),
        ("redis://h/0?TTL=1", "ttl, replicas, ca are allowed"),
        ("redis://h/0?shards=1", "'shards' is not a parameter"),
        ("redis://h/0?ca=x", "for TLS"),
        ("elasticsearch+http://h", "alias of an index"),
        ("elasticsearch+http://h/Rows", "alias of an index"),
        (f"{ELASTIC}?fields=url", "name:type"),
        (f"{ELASTIC}?fields=url:keyword,url:text", "each name once"),
        (f"{ELASTIC}?fields=url:blob", ", ".join(FIELD_TYPES)),
        (f"{ELASTIC}?refresh=0", "1 to 3600"),
        ("elasticsearch+https://u:p@h/rows?api_key=x", "either a user or"),
        ("cassandra://h/shop", "/keyspace/table"),
        ("cassandra://h/shop/Rows", "lower-case"),
        ("cassandra://a:1,b:2/shop/rows", "same port"),
        (f"{CASSANDRA}?replicas=3", "dc1:3"),
        (f"{CASSANDRA}?replicas=dc1:3,dc1:2", "dc1:3"),
        ("redis://h/0?ttl=%ff", "UTF-8"),
    ],
)
def test_a_malformed_url_is_rejected_with_the_allowed_forms(url: str, said: str) -> None:
    assert said in refusal(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hun@ter2@h/0",
        "redis://me:hun/ter2@h/0",
        "redis://me:hun?ter2@h/0",
        "redis://me:hun#ter2@h/0",
        "redis://me:hunter2@h:port/0",
        "redis://me:hun%ffter2@h/0",
        "redis://me:hunter2@h/0?nonsense=hunter2",
        "http://me:hunter2@h",
        "hunter2@h",
        "cassandra://me:hunter2@h",
        f"{ELASTIC}?api_key=hunter2%07",
        "redis://me:hunter2\n@h",
    ],
)
def test_no_error_shows_what_may_be_a_password(url: str) -> None:
    message = refusal(url)
    assert not re.search("hun|ter2", message)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@127.0.0.1:1/0",
        "elasticsearch+http://me:hunter2@127.0.0.1:1/rows",
        "elasticsearch+http://127.0.0.1:1/rows?api_key=hunter2",
        "cassandra://me:hunter2@127.0.0.1:1/shop/rows",
    ],
)
def test_the_error_of_an_unreachable_server_has_its_address_and_no_password(url: str) -> None:
    driver = store_from(url, "t")
    with pytest.raises(RetryLater, match=r"127\.0\.0\.1:1") as failed:
        driver.read([b"a"], 1)
    error: BaseException | None = failed.value
    while error is not None:
        assert "hunter2" not in f"{error} {error!r}"
        error = error.__cause__
    assert "hunter2" not in repr(driver)
    driver.close()


@pytest.mark.parametrize(
    ("login", "sent"), [("alice", (b"alice", b"")), (":pw", (b"pw",)), ("a:b", (b"a", b"b"))]
)
def test_redis_is_asked_as_the_user_with_or_without_a_password(login: str, sent: tuple[bytes, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        driver = store_from(f"redis://{login}@127.0.0.1:{server.getsockname()[1]}/0", "t")

        def ask() -> None:
            with pytest.raises(RetryLater):
                driver.read([b"a"], 1)

        asking = threading.Thread(target=ask)
        asking.start()
        connection, _ = server.accept()
        with connection:
            first = connection.recv(1000)
        asking.join()
        driver.close()
    words = [word for word in first.split(b"\r\n") if not word.startswith((b"*", b"$"))]
    at = words.index(b"AUTH") + 1
    assert tuple(words[at : at + len(sent)]) == sent


def test_an_invalid_tenant_is_rejected_for_every_store() -> None:
    for url in ("memory:", "redis://h", ELASTIC, CASSANDRA):
        with pytest.raises(ConfigurationError, match="tenant 'a b'"):
            store_from(url, "a b")


def test_a_store_in_memory_has_no_admin() -> None:
    with pytest.raises(ConfigurationError, match="gone with its process"):
        StoreSettings.parse("memory:").admin("t")


@pytest.mark.parametrize(
    ("url", "extra"), [("redis://h", "redis"), (ELASTIC, "elasticsearch"), (CASSANDRA, "cassandra")]
)
def test_a_client_that_is_not_installed_is_named_with_what_to_install(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == extra:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, f"microbatch.stores.{extra}", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=rf"pip install 'streamtable-microbatch\[{extra}\]'"):
        store_from(url, "t")


def test_the_docs_page_has_exactly_the_supported_forms_and_parameters() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for form in FORMS.values():
        for each in form.split(", "):
            if "://" in each:
                assert f"`{each.split(' ')[0]}`" in page, each
    for kind, parameters in PARAMETERS.items():
        section = page.split(f"\n## {kind.capitalize()}")[1].split("\n## ")[0]
        assert re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE) == list(parameters), kind
    for field_type in FIELD_TYPES:
        assert f"`{field_type}`" in page

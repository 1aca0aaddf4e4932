"""Settings are checked when they are built, without a broker."""

import pytest
from confluent_kafka import Consumer

from streamtable.errors import ConfigurationError
from streamtable.kafka import Kafka, _made, options


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost:", ":9092", "localhost:0", "localhost:65536", "a:1,,"]
)
def test_an_address_needs_host_and_port(address: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        Kafka(address)


@pytest.mark.parametrize("address", ["localhost:9092", "a:1, b:2", "[::1]:9092"])
def test_several_addresses_are_separated_by_commas(address: str) -> None:
    assert Kafka(address).bootstrap_servers == address


@pytest.mark.parametrize(
    "name", ["acks", "enable.auto.commit", "auto.offset.reset", "isolation.level", "partitioner", "group.id"]
)
def test_an_option_that_would_break_a_guarantee_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}' cannot be set: .+"):
        Kafka("localhost:9092", {name: "all"})


def test_an_unknown_option_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"no\.such\.setting"):
        Kafka("localhost:9092", {"no.such.setting": "1"}).transactional_producer(None)


def test_ctrl_c_inside_of_the_client_is_still_ctrl_c() -> None:
    def interrupted(_: dict[str, object]) -> None:
        # As the client does when a signal's handler raises while it reads its settings.
        raise TypeError("expected configuration property name as type unicode string")

    with pytest.raises(KeyboardInterrupt):
        _made(interrupted, {"client.id": "here"})
    with pytest.raises(TypeError):
        _made(interrupted, {1: "here"})  # type: ignore[dict-item] # what the client means by it


def test_ctrl_c_while_the_client_reads_a_value_is_ctrl_c() -> None:
    class Interrupted(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise KeyboardInterrupt  # the client asks for the text of each value, and there Python handles signals

    with pytest.raises(KeyboardInterrupt):
        _made(Consumer, {"bootstrap.servers": "127.0.0.1:1", "group.id": Interrupted("g")})


@pytest.mark.parametrize(("asked", "milliseconds"), [(None, 9_900), ("60000", 9_900), ("5000", 5_000)])
def test_requests_of_a_transactional_producer_time_out_before_its_transaction(
    asked: str | None, milliseconds: int
) -> None:
    own = {} if asked is None else {"socket.timeout.ms": asked}
    config = {**options.client("localhost:9092", "c"), **options.transactional("t", 10.0), **own}
    assert options.timed_within(config)["socket.timeout.ms"] == milliseconds
    Kafka("localhost:9092", own).transactional_producer("t").close()  # the client accepts it


def test_a_timeout_that_is_no_number_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"socket\.timeout\.ms"):
        Kafka("localhost:9092", {"socket.timeout.ms": "soon"}).transactional_producer("t")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("linger.ms", 5, r"'linger\.ms': expected text, as '1' or 'true', not int"),
        ("socket.nagle.disable", True, "expected text, as '1' or 'true', not bool"),
        ("oauth_cb", print, r"'oauth_cb': expected text.*: use token= of Kafka"),
    ],
)
def test_an_option_that_is_no_text_is_refused_by_its_name(name: str, value: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Kafka("localhost:9092", {name: value})  # type: ignore[dict-item] # what a program without types does

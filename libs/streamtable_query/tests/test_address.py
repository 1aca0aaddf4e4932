"""The query address in a client id."""

from socket import gethostname

import pytest

from streamtable import Kafka
from streamtable.errors import ConfigurationError
from streamtable_query import QueryAddress, advertise
from streamtable_query.address import advertised


@pytest.mark.parametrize("address", ["pod-3.orders:7070", "10.0.0.1:1", "[fe80::1]:65535"])
def test_an_address_is_read_from_the_client_id_that_it_was_put_in(address: str) -> None:
    options = advertise(Kafka("k:9092", {"linger.ms": "5"}), address).options
    assert advertised(options["client.id"]) == QueryAddress.parse(address)
    assert options["linger.ms"] == "5"


@pytest.mark.parametrize(
    "address", ["pod", "pod:0", "pod:65536", "pod:x", ":x", ":0", "a b:7070", "fe80::1:70"]
)
def test_text_that_is_no_address_is_refused_with_the_form_that_it_should_have(address: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port"):
        advertise(Kafka("k:9092"), address)


def test_a_port_alone_is_at_the_host_name_of_the_machine_that_advertises_it() -> None:
    client_id = advertise(Kafka("k:9092"), ":7070").options["client.id"]
    assert advertised(client_id) == QueryAddress(gethostname(), 7070)
    assert advertised("streamtable-query@:7070") is None


def test_a_client_id_of_the_user_is_not_replaced() -> None:
    with pytest.raises(ConfigurationError, match=r"client\.id"):
        advertise(Kafka("k:9092", {"client.id": "mine"}), "pod:7070")


@pytest.mark.parametrize(
    "client_id", ["", "rdkafka", "pod:7070", "streamtable-query@", "streamtable-query@pod"]
)
def test_the_client_id_of_another_program_holds_no_address(client_id: str) -> None:
    assert advertised(client_id) is None

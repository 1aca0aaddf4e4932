from servicekit.auth.proxies import TrustedProxies, networks_of
from servicekit.grpc.connections import CALL_CREDIT_SECONDS, NO_CALL, TOO_MANY, GrpcConnections
from servicekit.grpc.peers import PeerAddress

A, B, C, D = (PeerAddress("10.0.0.1", port) for port in range(1, 5))
OTHER = PeerAddress("10.0.0.2", 1)


def connections(limit: int = 10, per_peer: int = 10, first_call_seconds: float = 5.0) -> GrpcConnections:
    return GrpcConnections(limit, per_peer, first_call_seconds)


def call(over: GrpcConnections, address: PeerAddress, now: float) -> None:
    with over.call(address, now):
        pass


def test_of_too_many_the_one_that_was_idle_longest_is_closed_not_the_newest() -> None:
    known = connections(limit=2)
    assert known.review([A], 0) == {}
    assert known.review([A, B], 1) == {}
    call(known, A, 2)
    assert known.review([A, B, C], 3) == {B: TOO_MANY}
    assert len(known) == 2


def test_one_peer_closes_only_its_own_connections() -> None:
    known = connections(per_peer=2)
    assert known.review([OTHER], 0) == {}
    assert known.review([OTHER, A, B, C, D], 1).keys() == {A, B}


def test_a_connection_with_an_open_call_outlives_idle_ones() -> None:
    known = connections(limit=1)
    with known.call(A, 0):
        assert known.review([A, B], 1) == {B: TOO_MANY}
    assert known.review([A, B], CALL_CREDIT_SECONDS + 1) == {A: TOO_MANY}


def test_many_that_come_at_once_do_not_push_out_one_that_has_called_a_moment_ago() -> None:
    known = connections(limit=2)
    call(known, A, 0)
    assert known.review([A, B, C, D], 1) == {B: TOO_MANY, C: TOO_MANY}
    known.review([A], 2)
    assert known.review([A, B, C], CALL_CREDIT_SECONDS + 1) == {A: TOO_MANY}


def test_of_connections_with_open_calls_the_one_that_sent_nothing_for_longest_is_closed() -> None:
    known = connections(limit=1)
    with known.call(A, 0), known.call(B, 1):
        known.active(A, 2)
        assert known.review([A, B], 3) == {B: TOO_MANY}


def test_a_connection_that_never_carries_a_call_is_closed() -> None:
    known = connections(first_call_seconds=5)
    known.review([A, B], 0)
    call(known, B, 1)
    assert known.review([A, B], 5) == {}
    assert known.review([A, B], 5.1) == {A: NO_CALL}
    assert known.review([B], 100) == {}


def test_connections_that_have_ended_are_forgotten_when_their_calls_have() -> None:
    known = connections()
    with known.call(A, 0):
        known.review([], 1)
        assert len(known) == 1, "it may be newer than the search"
    known.review([], 2)
    assert len(known) == 0


def test_a_network_of_ipv6_counts_as_one_peer_and_a_mapped_address_as_ipv4() -> None:
    known = connections(per_peer=1)
    first, second = PeerAddress("2001:db8::1", 1), PeerAddress("2001:db8::2", 2)
    assert known.review([first, second], 0) == {first: TOO_MANY}
    assert PeerAddress.of_grpc("ipv6:%5B::ffff:10.0.0.1%5D:1") == A


def test_a_trusted_proxy_may_have_any_number_of_connections_but_no_more_than_all_may() -> None:
    known = GrpcConnections(3, 1, 5.0, TrustedProxies(networks_of("10.0.0.1")))
    assert known.review([A, B, C], 0) == {}
    assert known.review([A, B, C, OTHER], 1) == {A: TOO_MANY}

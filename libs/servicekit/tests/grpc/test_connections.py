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


def test_beyond_the_limit_the_idlest_connection_is_closed_not_the_newest() -> None:
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


def test_many_new_connections_do_not_displace_one_that_has_just_made_a_call() -> None:
    known = connections(limit=2)
    call(known, A, 0)
    assert known.review([A, B, C, D], 1) == {B: TOO_MANY, C: TOO_MANY}
    known.review([A], 2)
    assert known.review([A, B, C], CALL_CREDIT_SECONDS + 1) == {A: TOO_MANY}


def test_among_connections_with_open_calls_the_idlest_is_closed() -> None:
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


def test_ended_connections_are_forgotten_once_their_calls_have_ended() -> None:
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


def test_a_trusted_proxy_is_bound_only_by_the_total_limit_of_connections() -> None:
    known = GrpcConnections(3, 1, 5.0, TrustedProxies(networks_of("10.0.0.1")))
    assert known.review([A, B, C], 0) == {}
    assert known.review([A, B, C, OTHER], 1) == {A: TOO_MANY}

"""A Kafka with TLS, SASL/SCRAM and least-privilege ACLs: what works, which error refuses others, what stays secret."""

import json
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.faults.patience import patiently
from tests.system.secure_world import STATUS_TOPIC, World, secure_world, services

from click_count.topics import by_count
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from localkafka.certificates import Authority, write_secret
from localkafka.security import BROKER
from localkafka.waiting import wait_until
from servicekit_testing import with_ids
from streamtable import Emitter, Kafka
from streamtable.base.ports import TopicDescription
from streamtable.base.types import TopicPartition
from streamtable.errors import AuthenticationFailed, AuthorizationError
from streamtable_admin.rights import Acl, UserAdmin
from streamtable_query import Query
from user_status.topics import UPDATES

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(300),
]  # the first test waits for the broker and six services
CLICK = {"user_id": "alice", "url": "https://example.org/"}
UPDATE: Any = {"id": "0190f6a2-5a7c-7c3e-8f3e-000000000001", "user_id": "alice", "status": "at work", "at": 1}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with secure_world() as made:
        yield made


@pytest.fixture(scope="module")
def fleet(world: World) -> Iterator[World]:
    """Yield the world with services."""
    with services(world):
        for user in ("click-count-query", "console"):
            with world.client(user) as client:
                wait_until(partial(is_ready, client), 60)
        yield world


def is_ready(client: httpx.Client) -> bool:
    return client.get("/readyz").status_code == 200


@pytest.fixture
def only(world: World) -> Iterator[Callable[..., None]]:
    """Gives a user that exists other rights than its own, for one test."""
    admin = world.kafka("admin").admin_of(UserAdmin)
    user = "user-status-emitter"
    before = admin.rights([user])

    def give(*rights: Acl) -> None:
        admin.revoke(admin.rights([user]))
        admin.grant(rights)
        wait_until(lambda: admin.rights([user]) == set(rights))

    yield give
    give(*before)
    admin.close()


def count_of(user: str, stub: Any, metadata: Any) -> int:
    """Return the count of a user; 0 while the view has not seen any click, or is slow."""
    try:
        count: int = stub.Get(
            pb.GetRequest(user_id=user), timeout=5, wait_for_ready=True, metadata=metadata
        ).count
    except grpc.RpcError as error:
        raised: Any = error
        not_yet = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED
        assert raised.code() in not_yet, raised
        return 0
    return count


def right(operation: str, resource: str, name: str) -> Acl:
    return Acl("user-status-emitter", resource, name, operation)


# ---- what works --------------------------------------------------------------------------------------------------------


def test_with_least_rights_a_click_comes_through_all_services_to_every_reader(fleet: World) -> None:
    user = f"user-{uuid4()}"
    with fleet.client("click-count-emitter") as emitter, fleet.client("click-count-query") as query:
        sent = emitter.post("/clicks", json=with_ids({**CLICK, "user_id": user}))
        assert sent.status_code == 201, sent.text
        token = {"Streamtable-Token": sent.headers["Streamtable-Token"]}

        def answered() -> httpx.Response | None:
            """Return the answer; None while the view has not read so far, as on a busy machine."""
            found = query.get(f"/clicks/{user}", headers=token)
            return found if found.status_code not in {503, 504} else None

        assert wait_until(answered).json()["count"] == 1  # type: ignore[union-attr]  # never None

    credentials = grpc.ssl_channel_credentials(fleet.security.authority.certificate)
    with grpc.secure_channel(fleet.running["click-count-view"][1], credentials) as channel:
        stub: Any = ClickCountsStub(channel)
        metadata = [("authorization", f"Bearer {fleet.key}")]
        wait_until(lambda: count_of(user, stub, metadata) == 1)

    with Emitter(UPDATES, fleet.kafka("user-status-emitter")) as updates:
        update: Any = {**UPDATE, "user_id": user}
        updates.emit_now(user, update)
    with fleet.client("console") as console:
        rows, changes = (
            "/api/tables/user-status-table/rows",
            "/api/topics/user-status-changes/records",
        )
        wait_until(lambda: user in console.get(rows).text)
        wait_until(lambda: user in console.get(changes).text)
    for program, _ in fleet.running.values():
        program.check_log()


def test_what_was_applied_is_as_declared_and_what_is_too_much_is_taken_away(world: World) -> None:
    files = ("--file", str(world.file))
    planned = json.loads(world.command("admin", "users", "plan", *files, "--json"))
    assert (planned["grant"], planned["revoke"]) == ([], [])
    assert len(planned["same"]) > 30
    admin = world.kafka("admin").admin_of(UserAdmin)
    admin.grant(
        [Acl("click-count-view", "topic", "user-clicks", "WRITE"), Acl("others", "group", "*", "READ")]
    )
    wait_until(lambda: len(admin.rights(["click-count-view", "others"])) > 5)
    caught = world.command("admin", "users", "apply", *files)
    assert "WRITE on topic user-clicks" in caught
    wait_until(
        lambda: not [each for each in admin.rights(["click-count-view"]) if each.name == "user-clicks"]
    )
    assert len(admin.rights(["others"])) == 1
    admin.close()


def test_a_new_password_is_valid_at_once_and_closes_no_connection(world: World) -> None:
    user = "user-status-view"
    old, new = world.kafka(user).admin(), "the-new-one"
    # The connection to a partition's leader stays. The one to a bootstrap server is closed by the client once it knows the
    # brokers, and after an answer that came over that one it has none.
    old.watermarks([TopicPartition(STATUS_TOPIC, 0)])
    write_secret(world.folder / f"{user}.password", new.encode())
    world.command("admin", "users", "apply", "--file", str(world.file), "--passwords", str(world.folder))
    assert STATUS_TOPIC in world.kafka(user).admin().topic_partitions()
    assert STATUS_TOPIC in old.topic_partitions()
    with pytest.raises(AuthenticationFailed, match=f"user '{user}' cannot log in"):
        world.kafka(user, 3, sasl_password="the-old-one").admin().topic_partitions()


def test_a_broker_takes_a_renewed_certificate_while_it_runs(world: World) -> None:
    host, _, port = world.broker.bootstrap_servers.rpartition(":")
    before = ssl.get_server_certificate((host, int(port)))
    file = world.security.authority.issue(BROKER).write_together(world.broker.data_dir / "broker.pem")
    location = ConfigEntry(
        "listener.name.sasl_ssl.ssl.keystore.location", str(file), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[location])
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap_servers, **world.broker.client()})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    wait_until(lambda: ssl.get_server_certificate((host, int(port))) != before)
    assert STATUS_TOPIC in world.kafka("console").admin().topic_partitions()


# ---- who is refused ----------------------------------------------------------------------------------------------------


def refused(error: AuthorizationError) -> tuple[str, str, str, str]:
    return error.user, error.operation, error.resource, error.name


def test_a_client_that_may_only_describe_a_topic_gets_an_error_that_writing_requires_write(
    world: World, only: Callable[..., None]
) -> None:
    only(
        right("READ", "topic", UPDATES.name),
        right("WRITE", "topic", STATUS_TOPIC),
        right("WRITE", "transactional id", "mine"),
    )
    kafka = world.kafka("user-status-emitter")
    lacking = ("user-status-emitter", "WRITE", "topic", UPDATES.name)
    emitter = Emitter(UPDATES, kafka)
    with pytest.raises(
        AuthorizationError, match="lacks the right WRITE on topic 'user-status-updates': grant it"
    ) as caught:
        emitter.emit_now("alice", UPDATE)
    assert refused(caught.value) == lacking
    assert caught.value.topic == UPDATES.name
    emitter.close()

    outbox = kafka.transactional_producer("mine")
    outbox.open(30)
    outbox.begin()
    outbox.produce(UPDATES.name, b"alice", b"x", partition=0, tracked=True)
    with pytest.raises(AuthorizationError) as caught:
        outbox.flush(30)
    assert refused(caught.value) == lacking
    outbox.close()

    stranger = kafka.transactional_producer("of-others")
    with pytest.raises(AuthorizationError) as caught:
        stranger.open(30)
    assert refused(caught.value) == ("user-status-emitter", "WRITE", "transactional id", "of-others")
    stranger.close()


def test_a_client_that_may_only_describe_a_topic_gets_an_error_that_reading_requires_read(
    world: World, only: Callable[..., None]
) -> None:
    only(right("DESCRIBE", "topic", UPDATES.name), right("READ", "group", "mine"))
    kafka = world.kafka("user-status-emitter")
    reader = kafka.table_reader("mine")
    reader.assign({TopicPartition(UPDATES.name, 0): 0})
    with pytest.raises(AuthorizationError) as caught:
        wait_until(lambda: bool(reader.poll(10, 0.1)))
    assert refused(caught.value) == ("user-status-emitter", "READ", "topic", UPDATES.name)
    reader.close()
    with pytest.raises(AuthorizationError) as caught:
        patiently(lambda: kafka.cluster().topics([UPDATES.name]))
    assert refused(caught.value) == ("user-status-emitter", "DESCRIBE_CONFIGS", "topic", UPDATES.name)


class NoListener:
    """Listens to nothing."""

    def assigned(self, places: Any) -> None: ...
    def revoked(self, places: Any) -> None: ...
    def lost(self, places: Any) -> None: ...


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_client_that_may_not_join_a_group_gets_an_error_that_names_it(
    world: World, only: Callable[..., None], protocol: Any
) -> None:
    only(right("READ", "topic", UPDATES.name))
    options = world.options("user-status-emitter")
    kafka = Kafka(world.broker.bootstrap_servers, options, group_protocol=protocol, admin_timeout=20)
    consumer = kafka.group_consumer("of-others", "here")
    consumer.subscribe([UPDATES.name], NoListener())
    with pytest.raises(AuthorizationError) as caught:
        wait_until(lambda: bool(consumer.poll(10, 0.1)))
    assert refused(caught.value) == ("user-status-emitter", "READ", "group", "of-others")
    consumer.close()
    with pytest.raises(AuthorizationError) as caught:
        patiently(lambda: kafka.cluster().stable_offsets("of-others", [TopicPartition(UPDATES.name, 0)]))
    assert refused(caught.value) == ("user-status-emitter", "DESCRIBE", "group", "of-others")


def test_who_may_not_delete_records_gets_an_error_that_deleting_requires_delete(world: World) -> None:
    cluster = world.kafka("user-status-emitter").cluster()
    with pytest.raises(AuthorizationError) as refused:
        patiently(lambda: cluster.delete_records({TopicPartition(UPDATES.name, 0): 0}))
    assert (refused.value.operation, refused.value.name) == ("DELETE", UPDATES.name)
    cluster.close()


def test_a_service_may_neither_make_topics_nor_grant_rights(world: World) -> None:
    admin = world.kafka("click-count-processor").admin_of(UserAdmin)
    with pytest.raises(AuthorizationError) as caught:
        admin.create_topics([TopicDescription("mine", 1, 1)])
    assert refused(caught.value) == ("click-count-processor", "CREATE", "topic", "mine")
    with pytest.raises(AuthorizationError) as caught:
        admin.grant([Acl("click-count-processor", "topic", "*", "READ")])
    assert refused(caught.value) == ("click-count-processor", "ALTER", "cluster", "kafka-cluster")
    with pytest.raises(AuthorizationError) as caught:
        admin.set_passwords({"admin": b"mine"})
    assert refused(caught.value)[1:] == ("ALTER", "cluster", "kafka-cluster")
    admin.close()


def test_a_service_that_comes_as_another_ends_and_says_which_right_it_lacks(world: World) -> None:
    code, said = world.ended("click-count-view", "click_count.main", "emitter")
    assert code == 1
    assert (
        "user 'click-count-view' lacks the right DESCRIBE (READ and WRITE bring it) on topic 'user-clicks'"
        in said
    )


def test_a_service_with_a_wrong_password_says_whose_and_where_to_correct_it(world: World) -> None:
    wrong = world.folder / "wrong.password"
    write_secret(wrong, b"not-the-password-of-anyone")
    code, said = world.ended(
        "click-count-query",
        "click_count.main",
        "query",
        "--fail-fast",
        STREAMTABLE_KAFKA_SASL_PASSWORD_FILE=str(wrong),
    )
    assert code == 1
    assert "user 'click-count-query' cannot log in: correct STREAMTABLE_KAFKA_SASL_USERNAME" in said
    assert "not-the-password" not in said


def test_the_owners_of_partitions_are_told_to_those_who_follow_the_group_and_to_no_others(
    world: World,
) -> None:
    group = by_count()
    with Query(world.kafka("click-count-query"), group, group.table) as counts:
        # The processor may run here; it says no address.
        wait_until(lambda: counts.not_ready.startswith(("no process of group", "the process of group")), 60)
    with (
        Query(world.kafka("user-status-emitter"), group, group.table) as counts,
        pytest.raises(AuthorizationError, match="click-count"),
    ):
        counts.get("alice", timeout=20)


def test_a_service_that_trusts_another_authority_reports_that_the_broker_is_not_trusted(
    world: World, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(Authority("stranger").certificate)
    with pytest.raises(AuthenticationFailed, match=r"is of an authority that is not in .*other\.crt"):
        world.kafka("console", 3, ssl_ca_location=str(other)).admin().brokers()


@pytest.mark.parametrize(
    ("key", "status", "message"),
    [
        ("", 401, "send a credential"),
        ("not-a-key-of-anybody", 401, "the credential is not valid"),
        ("reader", 403, "this needs the scope 'write'"),
    ],
)
def test_at_the_edge_a_missing_wrong_or_lesser_key_is_refused_in_words(
    fleet: World, key: str, status: int, message: str
) -> None:
    given = fleet.reader if key == "reader" else key
    with fleet.client("click-count-emitter", given) as emitter:
        answer = emitter.post("/clicks", json=CLICK)
    assert answer.status_code == status
    assert message in answer.text


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_doctor_says_who_we_are_and_what_we_may_not(world: World) -> None:
    files = ("--file", str(world.file))
    admin = world.kafka("admin").admin_of(UserAdmin)
    taken = Acl("click-count-view", "topic", "click-count-table", "READ")
    admin.revoke([taken])
    wait_until(lambda: taken not in admin.rights(["click-count-view"]))
    found = json.loads(world.command("admin", "doctor", *files, "--over", "0", "--json"))
    admin.grant([taken])
    admin.close()
    (access,) = [each["fact"] for each in found if each["subject"] == "access"]
    assert access == "authenticated as user 'admin' over SASL_SSL"
    assert [each["level"] for each in found if each["subject"] == "users"] == ["ok"]
    assert [each["subject"] for each in found if "lack" in each["fact"]] == ["user click-count-view"]
    (lack,) = [each for each in found if each["subject"] == "user click-count-view"]
    assert (lack["level"], lack["fact"]) == ("problem", "lacks READ on topic click-count-table")
    assert lack["advice"].startswith("streamtable users apply")

    seen = world.command("click-count-view", "doctor", *files, "--over", "0")
    assert "user 'click-count-view' lacks the right" in seen


def test_no_secret_is_in_anything_that_was_written(fleet: World) -> None:
    kept = {path.name: path.read_text() for path in fleet.folder.glob("*.password")}
    kept |= {"key": fleet.key, "reader": fleet.reader, "broker": fleet.security.own_password}
    for file in [*fleet.folder.glob("*.key"), fleet.broker.data_dir / "broker.pem"]:
        kept[file.name] = file.read_text().splitlines()[1]
    wrote = {"commands": "\n".join(fleet.written)}
    for user, (program, _) in fleet.running.items():
        wrote[user] = "".join(program.lines)
        with fleet.client(user) as client:
            if user != "click-count-view":
                wrote[f"{user} /metrics"] = client.get("/metrics").raise_for_status().text
    with fleet.client("console") as console:
        for path in ("fleet", "history", f"topics/{STATUS_TOPIC}/records"):
            wrote[path] = console.get(f"/api/{path}").raise_for_status().text
    assert all(len(text) > 20 for name, text in wrote.items() if "view" not in name), wrote
    for name, text in wrote.items():
        for secret, value in kept.items():
            assert value not in text, f"{secret} is in what {name} wrote"

"""A flow on a real broker over history that is there before the flow starts."""

import json
import random
import time
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer
from tests.system.bench import Bench, until
from tests.system.test_flow import running

from streamtable import App, EventTime, Json, Stream, String
from streamtable.base.ports import Codec
from streamtable.flow import Flow

ANY: Codec[Any] = Json()
PARTITIONS = 4


def test_each_order_is_joined_with_its_payment_though_payments_are_keyed_by_customer(bench: Bench) -> None:
    orders, payments, out = (
        Stream(bench.name(name), String(), ANY) for name in ("orders", "payments", "out")
    )
    flow = Flow(bench.name("flow"), event_time=EventTime(idle_after=timedelta(seconds=1)))
    ordered = flow.stream(orders, time=lambda order: order["at"])
    paid = flow.stream(payments, time=lambda payment: payment["at"]).key_by(
        "by-order", lambda payment: payment["order"], key=String(), beside=ordered
    )
    within = (timedelta(0), timedelta(seconds=10))
    ordered.left_join(
        "in-time", paid, lambda _, payment: payment is not None, within=within, grace=timedelta(seconds=1)
    ).to(out)
    rng, began = random.Random(2), int(time.time() * 1000) - 1_800_000
    events: list[tuple[int, str, str, dict[str, Any]]] = []
    expected: dict[str, bool] = {}
    for number in range(200):
        name, at = f"order-{number}", began + rng.randrange(3_000)
        events.append((at, orders.name, name, {"at": at}))
        after = rng.choice([rng.randrange(10_000), 10_001 + rng.randrange(2_000), None])
        if after is not None:
            events.append(
                (at + after, payments.name, f"customer-{number % 17}", {"order": name, "at": at + after})
            )
        expected[name] = after is not None and after <= 10_000

    def found() -> list[tuple[str, bool]]:
        return sorted(
            ((each.key or b"").decode(), json.loads(each.value or b"")) for each in bench.read(out.name)
        )

    with App(bench.kafka, bench.folder) as app:
        app.create_topics(flow, partitions=PARTITIONS)
        needed = [orders.name, payments.name, out.name, *flow.group().input_topics]
        until(lambda: len(bench.cluster.topics(needed)) == len(set(needed)), "topics exist")
        producer = Producer(
            {"bootstrap.servers": bench.kafka.bootstrap_servers, "partitioner": "murmur2_random"}
        )
        for _, topic, key, value in sorted(events, key=lambda event: event[0]):
            producer.produce(topic, json.dumps(value), key)
        producer.flush()
        with running(app, flow):
            until(lambda: len(found()) >= len(expected), "each order has come out")
    assert found() == sorted(expected.items())

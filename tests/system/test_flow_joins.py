"""Joins of a flow on a real broker: an outer join and a join by a foreign key, with a restart on an empty disk in between."""

import shutil
import time
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer
from tests.system.bench import Bench, until
from tests.system.test_flow import running

from streamtable import App, EventTime, Json, Stream, String
from streamtable.base.partitioner import partition_for
from streamtable.flow import Flow, Tumbling


def pair(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def test_pairs_and_rows_are_joined_across_a_restart_and_what_is_left_comes_out_alone_once(
    bench: Bench,
) -> None:
    clicks, orders, out, priced = (
        Stream(bench.name(name), String(), String()) for name in ("clicks", "orders", "out", "priced")
    )
    flow = Flow(bench.name("flow"), event_time=EventTime(idle_after=None))
    left, right = flow.stream(clicks), flow.stream(orders)
    minute = timedelta(minutes=1)
    left.outer_join("both", right, pair, within=minute, grace=minute).to(out)
    products = right.key_by("by-product", lambda order: order[:1], key=String()).to_table("products")
    named = left.to_table("named")
    named.join("priced", products, pair, on=lambda click: click[:1], value=String()).to_stream().to(priced)
    began = int(time.time() * 1000) - 3_600_000

    def found(stream: Stream[str, str]) -> list[str]:
        return sorted((each.value or b"").decode() for each in bench.read(stream.name))

    with App(bench.kafka, bench.folder) as app, app.emitter(clicks) as click, app.emitter(orders) as order:
        app.create_topics(flow, partitions=2)
        needed = [clicks.name, orders.name, *(topic for group in flow.groups for topic in group.input_topics)]
        until(lambda: len(bench.cluster.topics(needed)) == len(set(needed)), "topics exist")
        with running(app, flow):
            for user in ("ann", "bob", "cid"):
                click.emit_now(user, f"x-{user}", timestamp_ms=began)
            order.emit_now("ann", "x-1", timestamp_ms=began + 1)
            until(lambda: found(out) == ["x-ann+x-1"], "a pair comes out")
            until(lambda: len(set(found(priced))) == 3, "three rows are joined by their product")
        shutil.rmtree(bench.folder)
        with running(app, flow):
            order.emit_now("bob", "x-2", timestamp_ms=began + 2)
            until(lambda: "x-bob+x-2" in found(out), "a record that waited before the restart is matched")
            rows = {f"x-{user}+x-2" for user in ("ann", "bob", "cid")}
            until(lambda: rows <= set(found(priced)), "all rows of the product follow its change")
            for emitter in (click, order):
                for number in range(8):  # in both partitions
                    emitter.emit_now(f"later-{number}", "y", timestamp_ms=began + 3_000_000)
            until(lambda: "x-cid+None" in found(out), "what nothing has matched comes out alone")
    mine = [each for each in found(out) if each.startswith("x-")]
    assert mine == ["x-ann+x-1", "x-bob+x-2", "x-cid+None"]


def test_a_left_topic_of_another_partitioner_is_joined_by_a_foreign_key(bench: Bench) -> None:
    """A producer of confluent-kafka that sets no partitioner places keys by crc32, whatever is declared."""
    sales, products, priced = (
        Stream(bench.name(name), String(), String()) for name in ("sales", "products", "priced")
    )
    flow = Flow(bench.name("flow"))
    latest = flow.stream(sales).to_table("sales")
    known = flow.stream(products, group="products").to_table("products")
    latest.join("priced", known, pair, on=str, value=String()).to_stream().to(priced)
    sold = {f"sale-{number}": f"p{number % 3}" for number in range(12)}
    assert any(partition_for(key.encode(), 3) != partition_for(key.encode(), 3, "crc32") for key in sold)

    def found() -> dict[bytes, bytes]:
        return {each.key or b"": each.value or b"" for each in bench.read(priced.name)}

    def expected(price: str) -> dict[bytes, bytes]:
        return {key.encode(): f"{product}+{price}-{product}".encode() for key, product in sold.items()}

    with App(bench.kafka, bench.folder) as app, app.emitter(products) as product:
        app.create_topics(flow, partitions=3)
        needed = [
            sales.name,
            products.name,
            *(topic for group in flow.groups for topic in group.input_topics),
        ]
        until(lambda: len(bench.cluster.topics(needed)) == len(set(needed)), "topics exist")
        producer = Producer({"bootstrap.servers": bench.kafka.bootstrap_servers})
        for key, value in sold.items():
            producer.produce(sales.name, value, key)
        producer.flush()
        for number in range(3):
            product.emit_now(f"p{number}", f"old-p{number}")
        with running(app, flow):
            until(lambda: found() == expected("old"), "each sale has its product")
        shutil.rmtree(bench.folder)
        with running(app, flow):
            for number in range(3):
                product.emit_now(f"p{number}", f"new-p{number}")
            until(lambda: found() == expected("new"), "each sale follows its product after a restart")


def test_grouped_tables_windowed_joins_intervals_and_global_tables_go_on_after_a_restart(
    bench: Bench,
) -> None:
    json: Any = Json()
    requests, prices = (Stream[str, Any](bench.name(name), String(), json) for name in ("requests", "prices"))
    names = ("ratios", "live", "priced", "cheapest")
    outs = {name: Stream[str, Any](bench.name(name), String(), json) for name in names}
    flow = Flow(bench.name("flow"), event_time=EventTime(idle_after=None))
    window = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    stream = flow.stream(requests)
    counts, errors = (
        each.group_by_key().window(window).count(name)
        for name, each in (("requests", stream), ("errors", stream.filter(lambda request: request["failed"])))
    )
    ratios = errors.join("ratio", counts, lambda bad, every: bad / every).final()
    ratios.map(lambda key, ratio: (key.key, ratio), value=json).to(outs["ratios"])
    stream.group_by_key().count("total").every("live", timedelta(minutes=1)).to(outs["live"])
    known = flow.stream(prices, group="prices").to_table("latest")
    by_shop = known.group_by("by-shop", lambda price: price["shop"], key=String())
    by_shop.min("cheapest", lambda price: price["cents"]).to_stream().to(outs["cheapest"])
    stream.join_global(
        known.table, lambda request, price: price["cents"], on=lambda request: request["of"]
    ).to(outs["priced"])
    minute_ms = 60_000
    began = (int(time.time() * 1000) - 3_600_000) // minute_ms * minute_ms

    def found(name: str) -> list[tuple[str, Any]]:
        records = bench.read(outs[name].name)
        return [
            ((each.key or b"").decode(), None if each.value is None else json.decode(each.value))
            for each in records
        ]

    def priced() -> list[int]:
        return [cents for key, cents in found("priced") if key != "probe"]

    with App(bench.kafka, bench.folder) as app, app.emitter(requests) as ask, app.emitter(prices) as price:
        app.create_topics(flow, partitions=2)
        needed = [requests.name, prices.name, *(t for group in flow.groups for t in group.input_topics)]
        until(lambda: len(bench.cluster.topics(needed)) == len(set(needed)), "topics exist")
        with running(app, flow):
            for product, cents in (("pear", 5), ("fig", 7), ("nut", 9)):
                price.emit_now(product, {"shop": "corner", "cents": cents})
            until(lambda: ("corner", 5) in found("cheapest"), "the least price comes out")

            def is_known() -> (
                bool
            ):  # a global table follows its changelog on its own; requests do not wait for it
                ask.emit_now("probe", {"failed": False, "of": "pear"}, timestamp_ms=began)
                return bool(found("priced"))

            until(is_known, "the flow has read the price")
            for number in range(4):
                request = {"failed": number == 3, "of": "pear"}
                ask.emit_now("ann", request, timestamp_ms=began + number)
            until(lambda: len(priced()) == 4, "requests are joined with prices")
        shutil.rmtree(bench.folder)
        with running(app, flow):
            price.emit_now("pear", {"shop": "corner", "cents": 8})
            until(lambda: found("cheapest")[-1] == ("corner", 7), "the next least price takes its place")
            for number in range(8):  # in both partitions
                request = {"failed": False, "of": "nut"}
                ask.emit_now(f"later-{number}", request, timestamp_ms=began + 2 * minute_ms)
            until(lambda: len(found("ratios")) == 1 and len(priced()) == 12, "the minute closes")
            until(lambda: ("ann", 4) in found("live"), "the count of the minute comes out")
    assert found("ratios") == [("ann", 0.25)]
    assert [each for each in found("live") if each[0] == "ann"] == [("ann", 4)]
    assert sorted(priced()) == [5] * 4 + [9] * 8
    assert found("cheapest")[-1] == ("corner", 7)

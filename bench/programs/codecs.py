"""Measures the CPU of a handler that adds up a field of orders, by the codec of the orders. In this process, without Kafka."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import structlog
from bench.job import Job
from bench.programs.marks import mark, tell
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pydantic import BaseModel

from streamtable import Avro, Bytes, Context, Group, Input, Json, Long, Persist, Stream, String, Typed
from streamtable_codecs import Protobuf
from streamtable_testing import Tester

_USERS = 1_000
_DISTINCT = 200
_ROUNDS = 3
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "user", "type": "string"},
        {"name": "at", "type": "long"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "price", "type": "double"},
                        {"name": "count", "type": "int"},
                    ],
                },
            },
        },
    ],
}


class Item(msgspec.Struct):
    sku: str
    price: float
    count: int


class Order(msgspec.Struct):
    id: str
    user: str
    at: int
    items: list[Item]


@dataclass
class OrderClass:
    id: str
    user: str
    at: int
    items: list[Item]


class ModelItem(BaseModel):
    sku: str
    price: float
    count: int


class OrderModel(BaseModel):
    id: str
    user: str
    at: int
    items: list[ModelItem]


class Case(NamedTuple):
    """A codec, its value of plain data, and the field that is added up."""

    codec: Any
    of: Callable[[dict[str, Any]], Any]
    at: Callable[[Any], int]


def message() -> Any:
    """Return the class of orders, which is made without a compiler."""
    file = FileDescriptorProto(name="bench_orders.proto", package="bench", syntax="proto3")
    kinds = FieldDescriptorProto
    item = file.message_type.add(name="Item")
    for number, (name, kind) in enumerate(
        (("sku", kinds.TYPE_STRING), ("price", kinds.TYPE_DOUBLE), ("count", kinds.TYPE_INT32)), start=1
    ):
        item.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        (("id", kinds.TYPE_STRING), ("user", kinds.TYPE_STRING), ("at", kinds.TYPE_INT64)), start=1
    ):
        order.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    many = kinds.LABEL_REPEATED
    order.field.add(name="items", number=4, type=kinds.TYPE_MESSAGE, label=many, type_name=".bench.Item")
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("bench.Order"))


def cases() -> dict[str, Case]:
    """Return the codecs by the names of their rows."""
    made = message()
    return {
        "codec_json": Case(Json(), dict, lambda order: int(order["at"])),
        "codec_typed": Case(Typed(Order), _by(Order), lambda order: int(order.at)),
        "codec_typed_dataclass": Case(Typed(OrderClass), _by(OrderClass), lambda order: int(order.at)),
        "codec_typed_pydantic": Case(
            Typed(OrderModel), OrderModel.model_validate, lambda order: int(order.at)
        ),
        "codec_avro": Case(Avro(AVRO), dict, lambda order: int(order["at"])),
        "codec_protobuf": Case(Protobuf(made), lambda order: made(**order), lambda order: int(order.at)),
    }


def _by(kind: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda order: msgspec.convert(order, kind)


def order(number: int) -> dict[str, Any]:
    items = [{"sku": f"sku-{each}", "price": each * 1.5, "count": each} for each in range(3)]
    return {
        "id": f"order-{number}",
        "user": f"user-{number}",
        "at": 1_700_000_000_000 + number,
        "items": items,
    }


def microseconds(case: Case, records: int) -> float:
    """Return the CPU microseconds of one record, from the topic to the committed row."""

    def add(ctx: Context[str, int], event: Any) -> None:
        ctx.set(((ctx.value or 0) + case.at(event)) & 0xFFFF)

    values = [case.codec.encode(case.of(order(number))) for number in range(_DISTINCT)]
    events = [(f"user-{number % _USERS}", values[number % _DISTINCT]) for number in range(records)]
    group = Group("orders", Input(Stream("in", String(), case.codec), add), Persist(Long()))
    with Tester() as tester:
        tester.run(group)
        began = time.process_time()
        tester.emit_many(Stream("in", String(), Bytes()), events)
        spent = time.process_time() - began
        assert len(tester.table(group)) == min(_USERS, records)
        assert not tester.dead_letters(group)
    return spent / records * 1e6


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    job = Job.from_environment(os.environ)
    mark("first")
    found: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):  # by turns, as the machine's speed varies
        for name, case in cases().items():
            found.setdefault(name, []).append(microseconds(case, job.records))
    mark("last")
    tell({name: sorted(each)[_ROUNDS // 2] for name, each in found.items()})


if __name__ == "__main__":
    main()

"""A processor that answers queries, and empty calls for comparison: `measured.py SERVERS PREFIX STATE ADDRESS`."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from tests.system.bench import count

from streamtable import App, Group, Input, Kafka, Long, Persist, Stream, String
from streamtable_query import add_query_service, advertise


def main(servers: str, prefix: str, state: str, address: str) -> None:
    events = Stream(f"{prefix}in", String(), String())
    group: Group[str, int] = Group(f"{prefix}g", Input(events, count), Persist(Long()))
    processor = App(advertise(Kafka(servers), address), Path(state)).processor(group, instance_id="measured")
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    empty = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("measured", {"Empty": empty}),))
    add_query_service(processor, server)
    server.add_insecure_port(address)
    server.start()
    processor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

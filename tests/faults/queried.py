"""A processor of its own process that answers queries: `queried.py SERVERS PREFIX STATE INSTANCE ADDRESS`."""

import sys
from pathlib import Path

from tests.system.bench import count

from streamtable import App, Group, Input, Kafka, Long, Persist, Stream, String
from streamtable_query import QueryServer, advertise


def main(servers: str, prefix: str, state: str, instance: str, address: str) -> None:
    events = Stream(f"{prefix}in", String(), String())
    group: Group[str, int] = Group(f"{prefix}g", Input(events, count), Persist(Long()))
    app = App(advertise(Kafka(servers), address), Path(state))
    processor = app.processor(group, instance_id=instance, commit_interval=0.05, standby=1)
    with QueryServer(processor, address):
        processor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

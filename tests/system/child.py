"""A processor of its own process, to be killed at a failpoint: `child.py SERVERS PREFIX STATE GUARANTEE FAILPOINT`."""

import sys
from pathlib import Path

from tests.system.bench import count

from streamtable import App, Group, Guarantee, Input, Kafka, Long, Persist, Stream, String

servers, prefix, state, guarantee, failpoint = sys.argv[1:]
group: Group[str, int] = Group(
    f"{prefix}-g", Input(Stream(f"{prefix}-in", String(), String()), count), Persist(Long())
)
App(Kafka(servers), Path(state)).processor(
    group, instance_id="i", guarantee=Guarantee(guarantee), commit_interval=0.05, failpoint=failpoint
).run()

"""A member in a process of its own, to be killed: `child.py SERVERS PREFIX TAG STATE INSTANCE GUARANTEE FAILPOINT`."""

import sys
from pathlib import Path

from tests.behaviour.groups import counting

from streamtable import App, Guarantee, Kafka

servers, prefix, tag, state, instance, guarantee, failpoint = sys.argv[1:]
group = counting(lambda name: f"{prefix}-{name}", tag)
App(Kafka(servers), Path(state)).processor(
    group, instance_id=instance, guarantee=Guarantee(guarantee), commit_interval=0.05, failpoint=failpoint
).run()

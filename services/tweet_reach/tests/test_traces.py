"""The way of a tweet through both stages, as a collector of traces sees it."""

from typing import Final

from contracts.records import Follow, Tweet
from microbatch import MicroBatch
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.task import Surroundings
from microbatch.tasks import BatchTasks
from servicekit.process.tracing import TraceSettings, tracing
from servicekit_testing.trace_collector import TraceCollector, collecting
from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint
from streamtable.base.tracing import Tracer
from streamtable_testing import Tester
from streamtable_testing.instance import MakeTasks
from tweet_reach import topics
from tweet_reach.stages import authors_stage, urls_stage

ID: Final = "0af76519-16cd-43dd-8448-eb211c80319c"


def tasks_of(group: MicroBatch, tracer: Tracer) -> MakeTasks:
    def make(clock: Clock, failpoint: Failpoint) -> BatchTasks:
        driver = MemoryDriver(MemoryServer(), tenant=group.name)
        return BatchTasks(Surroundings(group, clock, failpoint, tracer=tracer), driver)

    return make


def test_the_way_of_a_tweet_is_one_trace_through_both_stages_and_their_stores() -> None:
    collector, stages = TraceCollector(), [authors_stage("tweet-reach", 0.2), urls_stage("tweet-reach", 0.2)]
    with collecting(collector) as port:
        settings = TraceSettings(endpoint=f"http://127.0.0.1:{port}", service="tweet-reach", instance="one")
        with tracing(settings) as tracer, Tester(partitions=1) as tester:
            assert tracer is not None
            tester.kafka.shared_tracer = tracer
            for stage in stages:
                tester.run(stage, tasks=tasks_of(stage, tracer))
            # A tweet of an author without followers has no reach, and goes no further.
            tester.emit(
                topics.FOLLOWS, "ann", Follow(id=ID, author="ann", follower="bob", follows=True, at=1)
            )
            with tracer.serve("POST /tweets", None) as post:
                tester.emit(topics.TWEETS, "ann", Tweet(id=ID, author="ann", url="x.org", text="", at=1))
            tester.advance(2)
    trace = post.headers[0][1].decode().split("-")[1]  # type: ignore[union-attr] # it is kept
    story = {span.span: span for span in collector.spans if span.trace == trace}
    above = {span.name: story[span.parent].name for span in story.values() if span.parent}
    assert above == {
        "send tweets": "POST /tweets",
        "process tweet-reach-authors": "send tweets",
        "read tweet-reach-authors": "process tweet-reach-authors",
        "commit tweet-reach-authors": "process tweet-reach-authors",
        "write tweet-reach-authors": "commit tweet-reach-authors",
        "process tweet-reach-urls": "commit tweet-reach-authors",
        "read tweet-reach-urls": "process tweet-reach-urls",
        "commit tweet-reach-urls": "process tweet-reach-urls",
        "write tweet-reach-urls": "commit tweet-reach-urls",
    }

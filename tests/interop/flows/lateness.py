"""Says in what programs flows and Kafka Streams find other records late, or close windows at another input.

With us event time belongs to the inputs of a flow: a record that is filtered out before a repartition moves it, a record is late
by its own input, and of merged inputs the one behind decides when a window closes. In Kafka Streams it follows the records that
arrive at the window.
"""

from collections.abc import Sequence

from tests.interop.flows import ours
from tests.interop.flows.programs import Program, Step, window_of

from streamtable.flow.windows.windows import TimeWindow


def event_time_differs(program: Program) -> bool:
    """Whether the two event times differ so that another record is late, or a final result comes at another input."""
    steps, step = program["steps"], window_of(program)
    if step is None or not isinstance(window := ours.window(step), TimeWindow):
        return False  # the other windows come behind steps that drop and merge nothing
    before = steps[: [each is step for each in steps].index(True)]
    read = {"a"} | {each["with"] for each in before if each["op"] == "merge"}
    times: dict[str, int] = {}
    we = theirs = -1
    opened: set[int] = set()
    for topic, _, value, time in program["inputs"]:
        if topic not in read:
            continue
        times[topic] = max(times.get(topic, -1), time)
        arrives = bool(_arriving(before, "a", topic, value))
        theirs = max(theirs, time) if arrives else theirs
        we = max(we, min(times.get(each, -1) for each in read))  # one without any record yet holds all back
        starts = window.assign([time]).starts if arrives else []
        closing = {start: window.closes_at(start, window.end_of(start)) for start in {*starts, *opened}}
        late_before = max(we, times[topic])
        if any((closing[start] <= late_before) != (closing[start] <= theirs) for start in starts):
            return True
        opened |= {start for start in starts if closing[start] > late_before}
        if step["emit"] == "final" and any(
            (closing[start] <= we) != (closing[start] <= theirs) for start in opened
        ):
            return True
    return False


def _arriving(steps: Sequence[Step], source: str, topic: str, value: int | None) -> list[int | None]:
    """Return the values that come out of the steps of a source, when a topic has got this value."""
    values = [value] if topic == source else []
    for step in steps:
        match step["op"]:
            case "map_values":
                values = [ours.change(step["by"])(each) for each in values]
            case "filter":
                values = [each for each in values if ours.test(step["by"])(each)]
            case "flat_map_values":
                values = [made for each in values for made in ours.copies(step["by"])(each)]
            case "merge":
                values += _arriving(step["steps"], step["with"], topic, value)
            case "split":
                values = [
                    made
                    for each in values
                    for made in _arriving(
                        step["then"] if ours.test(step["by"])(each) else step["else"], topic, topic, each
                    )
                ]
            case _:
                pass  # it changes the key at most
    return values

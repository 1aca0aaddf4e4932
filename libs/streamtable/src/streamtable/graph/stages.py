"""The stages of a group whose own output comes back to it: each stage has a watermark of its own.

A flow may read in one group a stream and what the same group, or one behind it, has made of that stream (`beside=`). The
topic that comes back cannot carry the watermark of the whole task: that waits for the topic itself. So the inputs of the
group have stages. Inputs of the first stage come from outside the group; an input of a later stage is made of inputs of
earlier stages alone. The watermark of a stage is the least stream time of the inputs up to this stage. The rows of a
state fall due by the watermark of their records' stage, and an output passes on the watermark of the stage that feeds it.

A state behind what falls due in the same group, such as windows of windows, gets records that are older than the watermark:
its rows fall due later by that, as if a topic with watermarks were between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamtable.graph.edge import Edge


@dataclass(frozen=True)
class Stages(Edge[object, object]):
    """The stages of a group, from 0. An input, state or output that is not named belongs to the first.

    Args:
        inputs: The stage of each input, by the name of its stream.
        states: The stage of each state table, by its name.
        outputs: The stage of each output, by the name of its stream.
        lags: How many milliseconds the rows of a state fall due after the watermark has reached their time, by its name.
    """

    inputs: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last stage."""
        return max(self.inputs.values(), default=0)

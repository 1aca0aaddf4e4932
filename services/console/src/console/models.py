"""What the console answers, as OpenAPI describes it. Times are in milliseconds since 1970, in UTC."""

from typing import Annotated, Any

from pydantic import BaseModel, Field


class Shown(BaseModel):
    """A key, value or header as it was decoded."""

    type: Annotated[str, Field(description="null, text, long, hex, or the name of a schema")]
    value: Annotated[Any, Field(description="as JSON can express it")]
    problem: Annotated[str | None, Field(description="why a schema did not fit")] = None
    cut: Annotated[int | None, Field(description="bytes in all, where not everything is shown")] = None


# ---- the fleet -------------------------------------------------------------------------------------------------------


class Partition(BaseModel):
    """A partition of a group in a process."""

    partition: int
    state: Annotated[str, Field(description="recovering or working")]
    remaining: Annotated[int, Field(description="changelog offsets still to read")]
    total: Annotated[int, Field(description="the most that there were to read")]


class Input(BaseModel):
    """A partition of a topic that a process reads."""

    topic: str
    partition: int
    lag: Annotated[
        int, Field(description="records to the end, where these are few; else offsets; -1: not known yet")
    ]
    records: Annotated[int, Field(description="read since the start")]


class Flow(BaseModel):
    """All partitions of a topic together, in one direction."""

    topic: str
    direction: Annotated[str, Field(description="in or out")]
    records: Annotated[int, Field(description="since the start")]
    rate: Annotated[float, Field(description="records a second, over the last ten seconds")]


class Copy(BaseModel):
    """A whole table that a process holds."""

    table: str
    partitions: int
    age_seconds: Annotated[float, Field(description="since its oldest partition was current")]


class EventTime(BaseModel):
    """How far event time has come in a partition of a group."""

    partition: int
    watermark: Annotated[int, Field(description="no earlier event is expected any more")]
    due_behind_ms: Annotated[int, Field(description="how far windows and timers that are due are behind it")]


class Due(BaseModel):
    """A partition of a state table whose rows fall due."""

    topic: str
    partition: int
    rows: Annotated[int, Field(description="open windows or pending timers, as last counted")]
    late: Annotated[
        int, Field(description="records that came when their windows were closed, since the start")
    ]


class Instance(BaseModel):
    """A process."""

    key: Annotated[str, Field(description="names it: group or service, role and instance")]
    service: str
    role: str
    group: Annotated[str, Field(description="that it processes; empty if none")]
    instance: str
    host: str
    pid: int
    version: str
    started_at: int
    at: Annotated[int, Field(description="when it reported this")]
    state: Annotated[str, Field(description="starting, recovering, ready, failed or silent")]
    error: Annotated[str, Field(description="kind and place of the error that ended it")]
    partitions: list[Partition]
    inputs: list[Input]
    flows: list[Flow]
    copies: list[Copy]
    event_times: list[EventTime]
    due: list[Due]
    emits: Annotated[list[str], Field(description="topics that it emits to")]
    commits: int
    committed_at: Annotated[int, Field(description="when the last commit was noticed; 0: never")]
    commit_ms: Annotated[float, Field(description="mean duration of the latest commits")]
    dead_letters: int
    aborts: int
    rebalances: int
    requests: int
    failed_requests: int
    request_rate: float
    memory_bytes: int
    store_bytes: int
    omitted: Annotated[int, Field(description="entries of the lists that were too many to send")]
    lag: Annotated[int, Field(description="of all its inputs, as far as it is known")]


class Node(BaseModel):
    """A group, service, topic or table; what is not known, or means nothing for its kind, is left out."""

    id: str
    kind: Annotated[str, Field(description="group, service, stream, table, loop or visits")]
    label: str
    detail: str
    instances: int | None = None
    states: Annotated[dict[str, int] | None, Field(description="how many processes are in which state")] = (
        None
    )
    lag: int | None = None
    dead_letters: int | None = None
    rate: Annotated[float | None, Field(description="offsets a second that a topic grows by")] = None
    partitions: int | None = None
    records: Annotated[int | None, Field(description="offsets between first and end")] = None


class Arrow(BaseModel):
    """Records go from one node to another."""

    source: str
    target: str
    how: Annotated[str, Field(description="stream, join, lookup, table, emit, view and so on")]
    rate: Annotated[float | None, Field(description="records a second; null: not known")]


class Box(BaseModel):
    """Where a node is drawn: its middle and its size."""

    x: int
    y: int
    width: int
    height: int


class Route(BaseModel):
    """The way of an edge."""

    points: Annotated[list[tuple[int, int]], Field(description="pairs of x and y, which grows downwards")]
    beside: Annotated[bool, Field(description="back around two nodes that are joined both ways")]


class GraphLayout(BaseModel):
    """Where to draw the graph."""

    width: int
    height: int
    boxes: Annotated[list[Box], Field(description="of the nodes, in their order")]
    routes: Annotated[list[Route], Field(description="of the edges, in their order")]


class Layouts(BaseModel):
    """Layouts of the graph, for wide and for narrow screens."""

    wide: GraphLayout
    narrow: GraphLayout


class Graph(BaseModel):
    """What all processes do, together."""

    nodes: list[Node]
    edges: list[Arrow]
    layouts: Annotated[Layouts | None, Field(description="null: the graph is too large to draw")] = None


class Topic(BaseModel):
    """A topic as the broker knows it."""

    topic: str
    partitions: int
    records: Annotated[int, Field(description="offsets between first and end, of all partitions")]
    rate: Annotated[float | None, Field(description="offsets a second that it grows by; null: not known yet")]


class Fleet(BaseModel):
    """All processes, as they are now."""

    now: int
    ready: Annotated[bool, Field(description="false: the statuses of the processes are still being loaded")]
    instances: list[Instance]
    graph: Graph
    topics: list[Topic]
    events: Annotated[int, Field(description="grows when there is something new in the history")]
    actions: Annotated[bool, Field(description="dead letters can be sent again from here")]
    runs_topic: Annotated[str, Field(description="the topic to which runs of jobs report")]


class Event(BaseModel):
    """Something that has happened."""

    at: int
    kind: Annotated[
        str,
        Field(
            description="started, stopped, failed, silent, back, recovered, rebalance, dead letters or aborts"
        ),
    ]
    who: Annotated[str, Field(description="key of the process")]
    text: str


class Events(BaseModel):
    """The latest first."""

    events: list[Event]


class Series(BaseModel):
    """The lag of a partition over time."""

    group: str
    topic: str
    partition: int
    points: Annotated[list[tuple[int, int]], Field(description="pairs of time and offsets")]


class Lags(BaseModel):
    """One series for each partition of each group."""

    lags: list[Series]


# ---- topics, tables, dead letters ------------------------------------------------------------------------------------


class Header(Shown):
    """A header of a record."""

    name: str


class Record(BaseModel):
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Shown
    value: Shown
    headers: list[Header]


class Records(BaseModel):
    """Committed records only."""

    records: list[Record]


class Row(BaseModel):
    """A row of a table; without value it was deleted."""

    id: Annotated[str, Field(description="its key in hexadecimal digits")]
    key: Shown
    value: Shown | None


class Rows(BaseModel):
    """A page of rows, in the order of their keys."""

    rows: list[Row]
    next: Annotated[str | None, Field(description="the next page's `after`; null: there is none")]
    age_seconds: Annotated[float, Field(description="since the copy was last current")]
    offset: Annotated[int, Field(description="how far the copy is, over all partitions")]


class Origin(BaseModel):
    """Where a dead letter comes from."""

    topic: str
    partition: int
    offset: int


class Raw(BaseModel):
    """Bytes in hexadecimal digits, 4,096 at most."""

    key: str | None
    value: str | None


class Letter(BaseModel):
    """A record that a group could not process."""

    letter: Annotated[str, Field(description="names it: PARTITION:OFFSET")]
    time: int
    origin: Annotated[Origin | None, Field(description="null: its headers do not say")]
    attempt: int | None
    error: Annotated[str, Field(description="kind of the error")]
    message: str
    key: Shown
    value: Shown
    value_omitted_bytes: Annotated[
        int | None, Field(description="size of a value that was too large to be kept")
    ]
    raw: Raw
    replayed: Annotated[int | None, Field(description="when it was last sent again; null: never")]


class Letters(BaseModel):
    """The latest first."""

    letters: list[Letter]


class Replayed(BaseModel):
    """What has become of letters that were to be sent again."""

    sent: list[str]
    before: Annotated[list[str], Field(description="left out, as they had been sent before")]


# ---- runs of jobs ----------------------------------------------------------------------------------------------------


class Run(BaseModel):
    """A run of a batch job."""

    run: Annotated[str, Field(description="names it")]
    job: str
    group: Annotated[str, Field(description="whose table is computed or audited; empty if it is about none")]
    as_group: Annotated[str, Field(description="whose table a rebuild writes; empty if none")]
    lake: str
    host: str
    version: str
    started_at: int
    at: Annotated[int, Field(description="when it reported this")]
    finished_at: Annotated[int, Field(description="0: it has not ended")]
    state: Annotated[str, Field(description="running, done, different, failed, interrupted or killed")]
    error: str
    stage: str
    stages_done: int
    stages: int
    records: Annotated[int, Field(description="read so far")]
    counts: Annotated[dict[str, int], Field(description="what it has come to so far")]
    differences: Annotated[int, Field(description="keys whose row is not as computed; -1: it is no audit")]
    summary: str
    report: str


class Runs(BaseModel):
    """The latest first."""

    runs: list[Run]


class RunInput(BaseModel):
    """A partition of a topic that a run reads."""

    topic: str
    partition: int
    start: Annotated[int, Field(description="the first offset that is read")]
    end: Annotated[int, Field(description="the offset behind the last one")]


class Difference(BaseModel):
    """A key whose row in the table is not as computed."""

    partition: int
    key: str
    difference: Annotated[str, Field(description="missing, extra, different or unreadable")]
    expected: str
    live: str


class WholeRun(Run):
    """A run with its inputs and what it has found."""

    inputs: list[RunInput]
    keys: Annotated[list[Difference], Field(description="the first of the keys that differ")]
    omitted: Annotated[int, Field(description="inputs and keys that were too many to send")]

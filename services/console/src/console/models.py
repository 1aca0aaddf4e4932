"""The response models of the console, for OpenAPI. Times are in milliseconds since 1970, in UTC."""

from typing import Annotated, Any

from pydantic import BaseModel, Field


class Shown(BaseModel):
    """A key, value or header as it was decoded."""

    type: Annotated[
        str, Field(description="the type of the value: null, text, long, hex, or the name of a schema")
    ]
    value: Annotated[Any, Field(description="the value as JSON")]
    problem: Annotated[
        str | None, Field(description="the reason why it could not be decoded by its schema")
    ] = None
    cut: Annotated[int | None, Field(description="the total number of bytes, if the value is cut")] = None


# ---- the fleet -------------------------------------------------------------------------------------------------------


class Partition(BaseModel):
    """A partition of a group in a process."""

    partition: int
    state: Annotated[str, Field(description="recovering or working")]
    remaining: Annotated[int, Field(description="changelog offsets still to read")]
    total: Annotated[
        int, Field(description="the largest number of changelog offsets left to read since recovery began")
    ]


class Input(BaseModel):
    """A partition of a topic that a process reads."""

    topic: str
    partition: int
    lag: Annotated[
        int, Field(description="the consumer lag: records if they are few, else offsets; -1: not known yet")
    ]
    records: Annotated[int, Field(description="records read since the start")]


class Flow(BaseModel):
    """The records of all partitions of a topic, read or written."""

    topic: str
    direction: Annotated[str, Field(description="in, out, or query: of a table in other processes")]
    records: Annotated[int, Field(description="records since the start")]
    rate: Annotated[float, Field(description="records per second over the last ten seconds")]


class Copy(BaseModel):
    """A complete copy of a table that a process holds."""

    table: str
    partitions: int
    age_seconds: Annotated[float, Field(description="seconds since its oldest partition was up to date")]


class EventTime(BaseModel):
    """The event time of a partition of a group."""

    partition: int
    watermark: Annotated[int, Field(description="the watermark: no earlier event is expected any more")]
    due_behind_ms: Annotated[int, Field(description="the delay of due windows and timers behind it")]


class Due(BaseModel):
    """A partition of a state table of windows or timers."""

    topic: str
    partition: int
    rows: Annotated[int, Field(description="the number of open windows or pending timers, as last counted")]
    late: Annotated[
        int, Field(description="late records, which arrived after their windows had closed, since the start")
    ]
    late_share: Annotated[
        float,
        Field(
            description="the share of late records among the records of the last minute; 0 if none was late"
        ),
    ]
    moved_by: Annotated[
        str,
        Field(
            description="the input that had moved the watermark for most late records; (silence): none, they were idle"
        ),
    ]
    late_advice: Annotated[
        str,
        Field(description="what would help, if too many records of the last minute were late; else empty"),
    ]


class Call(BaseModel):
    """The calls to the outside with one name that a group makes in a process."""

    call: str
    pending: int
    oldest_seconds: Annotated[
        float, Field(description="the age of the oldest pending call, by its event time")
    ]
    answered: Annotated[int, Field(description="calls answered since the start")]
    rate: Annotated[float, Field(description="answered calls per second")]
    failed: Annotated[int, Field(description="attempts that have failed since the start")]


class Instance(BaseModel):
    """A process."""

    key: Annotated[str, Field(description="the key of its record: group or service, role and instance")]
    service: str
    role: str
    group: Annotated[str, Field(description="the group that it runs; empty if none")]
    instance: str
    host: str
    pid: int
    version: str
    started_at: int
    at: Annotated[int, Field(description="the time of the report")]
    state: Annotated[str, Field(description="starting, recovering, ready, failed or silent")]
    error: Annotated[str, Field(description="class and position of the error that ended it")]
    partitions: list[Partition]
    inputs: list[Input]
    flows: list[Flow]
    copies: list[Copy]
    event_times: list[EventTime]
    due: list[Due]
    calls: list[Call]
    emits: Annotated[list[str], Field(description="the topics that it emits to")]
    commits: int
    committed_at: Annotated[int, Field(description="the time when the last commit was noticed; 0: never")]
    commit_ms: Annotated[float, Field(description="mean duration of the commits of the last ten seconds")]
    dead_letters: int
    aborts: int
    abort_reason: Annotated[
        str, Field(description="the reason of the latest aborted commit; empty: there was none")
    ]
    rebalances: int
    requests: int
    failed_requests: int
    request_rate: float
    memory_bytes: int
    store_bytes: int
    omitted: Annotated[int, Field(description="number of entries omitted from the lists")]
    lag: Annotated[int, Field(description="the lag of all its inputs, as far as it is known")]


class Node(BaseModel):
    """A group, service, topic or table; members that are unknown or do not apply to its kind are omitted."""

    id: str
    kind: Annotated[
        str, Field(description="group, service, stream, table, loop, visits or call; there may be others")
    ]
    label: str
    detail: str
    flow: Annotated[
        str | None,
        Field(description="the flow that it is inside of: a group of it, or a topic of these groups only"),
    ] = None
    instances: int | None = None
    states: Annotated[dict[str, int] | None, Field(description="the number of processes in each state")] = (
        None
    )
    lag: int | None = None
    dead_letters: int | None = None
    rate: Annotated[float | None, Field(description="growth of a topic in offsets per second")] = None
    partitions: int | None = None
    records: Annotated[int | None, Field(description="offsets between first and end")] = None
    group: Annotated[str | None, Field(description="the group that makes the calls")] = None
    pending: Annotated[int | None, Field(description="the number of pending calls")] = None
    oldest_seconds: Annotated[float | None, Field(description="the age of the oldest pending call")] = None


class Arrow(BaseModel):
    """An edge along which records flow from one node to another."""

    source: str
    target: str
    how: Annotated[str, Field(description="stream, join, lookup, table, emit, view, query and so on")]
    rate: Annotated[float | None, Field(description="records per second; null: not known")]


class Graph(BaseModel):
    """The graph of all processes."""

    nodes: list[Node]
    edges: list[Arrow]


class Topic(BaseModel):
    """A topic as the broker knows it."""

    topic: str
    partitions: int
    records: Annotated[int, Field(description="offsets between first and end, of all partitions")]
    rate: Annotated[float | None, Field(description="growth in offsets per second; null: not known yet")]


class Finding(BaseModel):
    """A present problem, as `streamtable doctor` finds it."""

    level: Annotated[str, Field(description="warning or problem")]
    subject: Annotated[str, Field(description="what it is about, such as `process KEY`")]
    node: Annotated[str, Field(description="the id of the node that it is about; empty if it is about none")]
    instance: Annotated[str, Field(description="the instance id of the process; empty if it is about none")]
    fact: str
    advice: Annotated[str, Field(description="the action to take")]
    since: Annotated[
        int | None, Field(description="when it began, or when it was first found; null: not known")
    ]


class Fleet(BaseModel):
    """All processes, as they are now."""

    now: int
    ready: Annotated[bool, Field(description="false: the statuses of the processes are still being loaded")]
    instances: list[Instance]
    findings: Annotated[list[Finding], Field(description="the present problems, the worst and longest first")]
    checked: Annotated[
        int | None, Field(description="when brokers and groups were last checked; null: not yet")
    ]
    graph: Graph
    topics: list[Topic]
    events: Annotated[int, Field(description="the number of events so far, which changes with each new one")]
    actions: Annotated[bool, Field(description="whether dead letters can be replayed here")]
    runs_topic: Annotated[str, Field(description="the topic that runs of jobs report to")]


class Event(BaseModel):
    """An event in the history of the fleet."""

    at: int
    kind: Annotated[
        str,
        Field(
            description="started, stopped, failed, silent, back, recovered, rebalance, dead letters or aborts"
        ),
    ]
    who: Annotated[str, Field(description="the key of the process")]
    text: str
    amount: Annotated[int, Field(description="the number of aborts or dead letters")]
    reason: Annotated[str, Field(description="the reason of the latest abort; empty if it is not known")]


class Events(BaseModel):
    """Events, the latest first."""

    events: list[Event]


class Series(BaseModel):
    """The lag of a partition over time."""

    group: str
    topic: str
    partition: int
    points: Annotated[list[tuple[int, int]], Field(description="pairs of time and offsets")]


class Measured(BaseModel):
    """A group over the last hour."""

    group: str
    points: Annotated[
        list[tuple[int, int, int, int]],
        Field(description="time, records a second in, lag, and mean commit time in milliseconds"),
    ]


class Measures(BaseModel):
    """One series for each group."""

    groups: list[Measured]


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
    """Committed records of a topic."""

    records: list[Record]


class Row(BaseModel):
    """A row of a table; null as value: it was deleted."""

    id: Annotated[str, Field(description="its key in hexadecimal digits")]
    key: Shown
    value: Shown | None


class Rows(BaseModel):
    """A page of rows, in the order of their keys."""

    rows: list[Row]
    next: Annotated[str | None, Field(description="`after` for the next page; null on the last")]
    age_seconds: Annotated[float, Field(description="seconds since the copy was up to date")]
    offset: Annotated[int, Field(description="the sum of the copy's offsets over all partitions")]


class Origin(BaseModel):
    """The position of the record that became a dead letter."""

    topic: str
    partition: int
    offset: int


class Raw(BaseModel):
    """Bytes in hexadecimal digits, 4,096 at most."""

    key: str | None
    value: str | None


class Letter(BaseModel):
    """A record that a group could not process."""

    letter: Annotated[str, Field(description="the position of the letter: PARTITION:OFFSET")]
    time: int
    origin: Annotated[Origin | None, Field(description="null: its headers do not name it")]
    attempt: int | None
    error: Annotated[str, Field(description="class of the error")]
    message: str
    key: Shown
    value: Shown
    value_omitted_bytes: Annotated[
        int | None, Field(description="size of a value that was too large to be kept")
    ]
    raw: Raw
    replayed: Annotated[int | None, Field(description="the time when it was last replayed; null: never")]


class Letters(BaseModel):
    """Dead letters, the latest first."""

    letters: list[Letter]
    complete: Annotated[bool, Field(description="false: there may be others, as not all was read")]


class Replayed(BaseModel):
    """The result of a replay of dead letters."""

    sent: list[str]
    before: Annotated[list[str], Field(description="letters skipped because they had been replayed before")]
    rows: Annotated[
        list[str], Field(description="letters skipped because they hold a timer or another row that fell due")
    ]


# ---- runs of jobs ----------------------------------------------------------------------------------------------------


class Run(BaseModel):
    """A run of a batch job."""

    run: Annotated[str, Field(description="the id of the run")]
    job: str
    group: Annotated[str, Field(description="the group whose table is computed or audited; empty if none")]
    as_group: Annotated[str, Field(description="the group whose table a rebuild writes; empty if none")]
    lake: str
    host: str
    version: str
    started_at: int
    at: Annotated[int, Field(description="the time of the report")]
    finished_at: Annotated[int, Field(description="0: the run has not ended")]
    state: Annotated[str, Field(description="running, done, different, failed, interrupted or killed")]
    error: str
    stage: str
    stages_done: int
    stages: int
    records: Annotated[int, Field(description="records read so far")]
    counts: Annotated[dict[str, int], Field(description="counters by name")]
    differences: Annotated[
        int, Field(description="number of keys whose row differs; -1: the job is no audit")
    ]
    summary: str
    report: str


class Runs(BaseModel):
    """Runs, the latest first."""

    runs: list[Run]


class RunInput(BaseModel):
    """A partition of a topic that a run reads."""

    topic: str
    partition: int
    start: Annotated[int, Field(description="the first offset to read")]
    end: Annotated[int, Field(description="the end offset, exclusive")]


class Difference(BaseModel):
    """A key whose row in the table differs from the computed row."""

    partition: int
    key: str
    difference: Annotated[str, Field(description="missing, extra, different or unreadable")]
    expected: str
    live: str


class WholeRun(Run):
    """A run with its inputs and the differences that it has found."""

    inputs: list[RunInput]
    keys: Annotated[list[Difference], Field(description="the first keys whose rows differ")]
    omitted: Annotated[int, Field(description="number of entries omitted from `inputs` and `keys`")]

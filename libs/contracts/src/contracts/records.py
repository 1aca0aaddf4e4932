"""Typed records, generated from proto/avro by libs/contracts/generate.py. Do not edit."""

from typing import Literal, TypedDict

from contracts.schema import RecordSchema


class Block(TypedDict):
    """A command to drop the messages of a sender, or to deliver them again; the key of the record is the sender's id."""

    by: str | None
    """The recipient who blocks the sender; null: the messages are dropped for all recipients, which the detector does for a spammer."""
    blocked: bool
    """Whether the sender is blocked; false removes an earlier block with the same `by`."""


class Blocked(TypedDict):
    """The recipients to whom the messages of a sender are not delivered; a row of blocker-table. A sender who is not blocked has no row."""

    everybody: bool
    """Whether the messages of the sender are dropped for all recipients."""
    by: list[str]
    """The recipients who have blocked the sender, sorted by id."""


class CategorizedStock(TypedDict):
    """The stock of a product in a warehouse together with the category of the product: the input of the totals by category."""

    category: str
    """The category of the product."""
    quantity: int
    """The pieces in stock."""


class CategoryStock(TypedDict):
    """The stock of all products of a category in all warehouses. The key is the category."""

    items: int
    """The number of listed products, in stock or not; a product in two warehouses counts twice."""
    quantity: int
    """The pieces in stock of all these products together."""


class Message(TypedDict):
    """A message from one user to another."""

    id: str
    """UUID given by the service or its caller, by which a repeated message can be recognised."""
    sender: str
    """The user who wrote the message; the key of the record before the filter."""
    recipient: str
    """The user who receives the message; the key of the record after the filter."""
    text: str
    """The text of the message; after the filter, with words replaced."""
    at: int
    """The time at which the service accepted the message, in milliseconds since 1970 in UTC."""


class Feed(TypedDict):
    """The latest messages sent to a user; a row of collector-table."""

    messages: list[Message]
    """The messages in the order of their arrival, the oldest first."""


class Follow(TypedDict):
    """A user follows an author, or stops following."""

    id: str
    """UUID given by the emitter or its caller, so that the event can be found again."""
    author: str
    """The user who is followed; also the key of the record."""
    follower: str
    """The user who follows."""
    follows: bool
    """Whether the user follows the author from now on; false: the user stops following."""
    at: int
    """The time of the event, in milliseconds since 1970 in UTC. For each pair of author and follower the event with the latest time applies, in whatever order the records arrive; of two with the same time, the one with `follows` true."""


class ItemOrders(TypedDict):
    """The orders of an item at the supplier. The key is <product>@<warehouse>."""

    placed: int
    """The number of orders that were placed."""
    last: str
    """The supplier's number of the last order; empty if there is none."""
    error: str
    """The error of the last order that was given up; empty if there is none."""


class JobInput(TypedDict):
    """A partition of a topic that the run reads."""

    topic: str
    partition: int
    start: int
    """The first offset to read."""
    end: int
    """The end offset, exclusive."""


class JobDifference(TypedDict):
    """A key whose row in the table differs from the computed row."""

    partition: int
    key: str
    """The key as text; bytes that are not valid text are in hexadecimal digits."""
    difference: str
    """The kind of difference: missing, extra, different, unreadable or overwritten. An overwritten row was written again and compacted away, so it cannot be compared."""
    expected: str
    """The computed row as JSON; empty if the key should have no row."""
    live: str
    """The row in the table as JSON, or its bytes in hexadecimal digits; empty if the table has no such row."""


class JobRun(TypedDict):
    """The status of a run of a batch job, keyed by run: published at its start, while it runs, and at its end."""

    run: str
    """The unique id of the run; also the key of the record."""
    job: str
    """The name of the job: etl, maintain, backfill, rebuild, reconcile and so on."""
    group: str
    """The group whose table is computed or audited; empty if the job is not about one group."""
    as_group: str
    """The group whose table a rebuild writes; empty if the job is no rebuild."""
    lake: str
    """The folder of the lake that the run reads or writes; empty if there is none."""
    host: str
    """The host name of the machine or container of the driver."""
    version: str
    """The version of the jobs' code."""
    started_at: int
    """The time of the start, in milliseconds since 1970 in UTC."""
    at: int
    """The time of this report, in milliseconds since 1970 in UTC. A run reports at least every ten seconds: a run in state running whose report is older than a minute was killed."""
    finished_at: int
    """The time of the end, in milliseconds since 1970 in UTC; 0: the run has not ended."""
    state: str
    """The state of the run: running, done, different (an audit has found differences), failed or interrupted."""
    error: str
    """The error and its remedy, if the run failed."""
    stage: str
    """The current stage of the run, in a few words."""
    stages_done: int
    """The number of completed stages."""
    stages: int
    """The total number of stages."""
    records: int
    """The number of records read so far."""
    inputs: list[JobInput]
    """The partitions and offset ranges that the run reads from Kafka; empty until it has determined them."""
    counts: dict[str, int]
    """The counters of the run so far, by name: events, rows, quarantined records."""
    differences: int
    """The number of keys whose row differs from the row computed from the inputs; -1: the job is no audit, or has not compared yet."""
    keys: list[JobDifference]
    """The first keys whose rows differ."""
    summary: str
    """The result of the run in one sentence."""
    report: str
    """The location of the report or manifest; empty if there is none."""
    omitted: int
    """The number of entries left out of `inputs` and `keys` to limit the size of the record."""


class MessageCounts(TypedDict):
    """The numbers of messages that a user has sent and received in a session; a row of detector-by-user-sessions."""

    sent: int
    """The number of messages sent to other users."""
    received: int
    """The number of messages received from other users, including dropped ones."""
    spammer: bool
    """Whether these counts are those of a spammer: many messages sent, few received."""


class Price(TypedDict):
    """The adjusted price of a product in a warehouse. The key is <product>@<warehouse>."""

    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    list_price: int
    """The list price in cents."""
    percent: int
    """The percentage added to the list price."""
    price: int
    """The adjusted price in cents, rounded down."""


class PriceAdjustment(TypedDict):
    """A warehouse sells a product at another price. The key is <product>@<warehouse>."""

    id: str
    """UUID given by the emitter or its caller. A repeated event changes nothing."""
    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    percent: int | None
    """The percentage added to the list price; null: the adjustment ends."""
    at: int
    """The time of the event, in milliseconds since 1970 in UTC."""


class PartitionStatus(TypedDict):
    """A partition of the group in this process."""

    partition: int
    state: str
    """The state of the partition: recovering or working."""
    remaining: int
    """The number of changelog offsets still to read."""
    total: int
    """The number of changelog offsets to read when recovery began: the largest `remaining` seen."""


class InputStatus(TypedDict):
    """A partition of an input topic."""

    topic: str
    partition: int
    lag: int
    """The consumer lag in offsets; -1: not known yet."""
    records: int
    """The number of records read since the process started."""


class FlowStatus(TypedDict):
    """The records of all partitions of a topic, read or written."""

    topic: str
    direction: str
    """The direction: in, out, or query for a table that other processes are asked for."""
    records: int
    """The number of records since the process started."""
    rate: float
    """Records per second over the last ten seconds."""


class CopyStatus(TypedDict):
    """A complete copy of a table."""

    table: str
    partitions: int
    age_seconds: float
    """Seconds since the oldest partition of the copy was up to date."""


class EventTimeStatus(TypedDict):
    """The event time of one partition of the group."""

    partition: int
    watermark: int
    """The watermark, in milliseconds since 1970 in UTC."""
    due_behind_ms: int
    """The delay of due rows behind the watermark, in milliseconds of event time."""


class DueStatus(TypedDict):
    """A partition of a state table of windows or timers."""

    topic: str
    partition: int
    rows: int
    """The number of rows that are not due yet, as last counted."""
    late: int
    """The number of late records since the process started."""
    late_share: float
    """The share of late records among those of a minute, the last that had any."""
    moved_by: str
    """The input that had moved the watermark for most of the late records; (silence): none, they were idle."""


class CallStatus(TypedDict):
    """The calls with one name."""

    call: str
    """The name of the call."""
    pending: int
    """The number of pending calls."""
    oldest_seconds: float
    """The age of the oldest pending call, by its event time."""
    answered: int
    """The number of calls answered since the process started."""
    rate: float
    """Answered calls per second over the last ten seconds."""
    failed: int
    """The number of attempts that failed since the process started."""


class ProcessStatus(TypedDict):
    """The status that a process reports, keyed by group or service, role and instance; a process deletes its record on a clean shutdown."""

    service: str
    """The service to which the process belongs: the name of its command."""
    role: str
    """The role of the process in its service: processor, view, query, emitter and so on."""
    group: str
    """The group that the process runs; empty if it runs no processor."""
    instance: str
    """The name of the process, unique among the processes of the same role."""
    host: str
    """The host name of the machine or container."""
    pid: int
    """The process id on that host."""
    version: str
    """The version of the service."""
    started_at: int
    """The time of the start, in milliseconds since 1970 in UTC."""
    at: int
    """The time of this report, in milliseconds since 1970 in UTC."""
    state: str
    """The state of the process: starting, recovering, ready or failed."""
    error: str
    """The class of the error that ended the process, with topic, partition and offset if it has them; empty if there was none."""
    graph: str
    """The graph of the group as JSON: its inputs, tables and outputs."""
    partitions: list[PartitionStatus]
    """The partitions of the group that are assigned to this process."""
    inputs: list[InputStatus]
    """The input partitions of the process."""
    flows: list[FlowStatus]
    """The rates at which the process reads from topics and writes to topics."""
    copies: list[CopyStatus]
    """The complete copies of tables that the process holds: views and lookup tables."""
    event_times: list[EventTimeStatus]
    """The watermark of each partition of a group that uses event time."""
    due: list[DueStatus]
    """The state tables whose rows become due: windows and timers."""
    calls: list[CallStatus]
    """The calls to the outside that handlers of the group make."""
    emits: list[str]
    """The topics that the process emits to."""
    commits: int
    """The number of commits since the process started."""
    committed_at: int
    """The time at which the last commit was noticed, in milliseconds since 1970 in UTC; 0: there was none."""
    commit_ms: float
    """The mean duration of the commits of the last ten seconds, in milliseconds."""
    dead_letters: int
    """The number of dead letters since the process started."""
    aborts: int
    """The number of transactions aborted since the process started."""
    abort_reason: str
    """The reason of the latest of them; empty if there was none."""
    rebalances: int
    """The number of rebalance callbacks since the process started."""
    requests: int
    """The number of HTTP requests since the process started, without health probes."""
    failed_requests: int
    """The number of HTTP requests answered with a status of 500 or above since the process started."""
    request_rate: float
    """HTTP requests per second over the last ten seconds."""
    memory_bytes: int
    """The resident memory of the process in bytes."""
    store_bytes: int
    """The size of the stores of the tables in bytes, on disk and in memory."""
    omitted: int
    """The number of entries left out of the lists above: each list holds at most 1,000."""


class Product(TypedDict):
    """The category and the list price of a product; the last record written applies. The key is the product."""

    id: str
    """UUID given by the emitter or its caller. A repeated event changes nothing."""
    product: str
    """The product: lower-case letters, digits and hyphens."""
    category: str
    """The category: lower-case letters, digits and hyphens."""
    price: int
    """The list price in cents."""
    at: int
    """The time of the event, in milliseconds since 1970 in UTC."""


class ReachAuthor(TypedDict):
    """The number of followers that an author adds to the reach of a URL."""

    author: str
    """The id of the author."""
    followers: int
    """The number of all followers of the author, including those who also follow other authors."""


class Reach(TypedDict):
    """The reach of a URL, which is the key; a row of tweet-reach-table. A URL that is in no tweet has no row."""

    reach: int
    """The number of distinct users who follow an author who tweeted the URL."""
    estimate: float
    """The number of distinct users as estimated by the sketch."""
    sketch: bytes
    """The HLL sketch of the users reached, in the format of Apache DataSketches with 4,096 registers; sketches of several URLs can be merged."""
    tweets: int
    """The number of tweets that link to the URL."""
    authors: int
    """The number of authors with a tweet that links to the URL."""
    top: list[ReachAuthor]
    """The authors with the most followers, at most 10, in descending order."""


class ReachFact(TypedDict):
    """The present contribution of an author to the reach of a URL, which is the key of the record. It states values, not differences, so a repeated record changes nothing."""

    author: str
    """The user who tweeted the URL."""
    tweets: int
    """The number of tweets of the author that link to the URL; 0: all were deleted."""
    added: list[str]
    """The followers of the author to add to the URL; at most 1,000 together with `removed`."""
    removed: list[str]
    """The followers of the author to remove from the URL."""


class ReachRebuild(TypedDict):
    """A request to continue the rebuild of the sketch of a URL, which is the key of the record; the second stage sends it to itself."""

    cursor: str
    """The position from which to continue: the first hexadecimal digits of the hash of a follower's name."""


class ReachState(TypedDict):
    """The state of a URL in the central store, without its maps."""

    url: str
    """The URL; the key of the row is its hash."""
    reach: int
    """The number of distinct users who follow an author who tweeted the URL."""
    tweets: int
    """The number of tweets that link to the URL."""
    authors: int
    """The number of authors with a tweet that links to the URL."""
    bringing: int
    """The number of authors with at least one follower."""
    listed: list[ReachAuthor]
    """The authors with the most followers, at most 100, in descending order."""
    floor: int
    """The upper bound of the number of followers of the authors that are not in `listed`."""
    sketch: bytes
    """The HLL sketch of the users reached, in the format of Apache DataSketches."""
    forgotten: int
    """The number of users who are no longer reached since the sketch was started; nothing can be removed from a sketch."""
    next_sketch: bytes | None
    """The new sketch while a rebuild is in progress; null: no rebuild is in progress."""
    next_cursor: str
    """The position from which the rebuild continues."""


class ReachWork(TypedDict):
    """The updates of an author, who is the key of the record, that the first stage has still to send; it sends this record to itself."""

    url: str | None
    """The URL for which to send all followers of the author; null: send `followers` for all URLs of the author."""
    followers: list[str]
    """The followers to send, at most 1,000; empty if `url` is set."""
    cursor: str
    """The position from which to continue: the first hexadecimal digits of the hash of a name; empty: from the beginning."""


class Reorder(TypedDict):
    """The stock of a product in a warehouse has fallen below its threshold. The key is <product>@<warehouse>."""

    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    quantity: int
    """The pieces left in stock."""
    threshold: int
    """The threshold at that time."""
    movement: str
    """The id of the stock movement that caused the reorder."""
    at: int
    """The time of that movement, in milliseconds since 1970 in UTC."""


class Stock(TypedDict):
    """The stock of a product in a warehouse. The key is <product>@<warehouse>."""

    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    quantity: int
    """The pieces in stock; below zero, more pieces were sold than were received."""
    threshold: int
    """The reorder threshold: the product is ordered again when the quantity falls below it."""


MovementKind = Literal["listed", "shipped", "sold"]


class StockMovement(TypedDict):
    """A warehouse lists a product, receives a shipment of it, or sells some. The key is <product>@<warehouse>."""

    id: str
    """UUID given by the emitter or its caller. A repeated event changes nothing."""
    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    kind: MovementKind
    """The kind of movement: shipped (pieces received), sold, or listed (the warehouse stocks the product from now on, or changes its threshold)."""
    quantity: int
    """The number of pieces shipped or sold, at least 1; for a listing, the threshold below which the product is ordered again."""
    at: int
    """The time of the event, in milliseconds since 1970 in UTC."""


class Traffic(TypedDict):
    """The numbers to add to the message counts of a user, who is the key of the record; a record of detector-by-user."""

    sent: int
    """The number of messages sent to other users."""
    received: int
    """The number of messages received from other users."""


class Translation(TypedDict):
    """The replacement in messages of a word; the key of the record is the case-folded word."""

    replacement: str | None
    """The text that replaces the word; null: the word is no longer replaced."""


class Tweet(TypedDict):
    """An author has tweeted a URL, or has deleted such a tweet."""

    id: str
    """UUID given by the emitter or its caller. A repeated id of the same author counts once, and is ignored after the tweet was deleted."""
    author: str
    """The author of the tweet; also the key of the record."""
    url: str | None
    """The URL that the tweet links to, compared character by character; null: the tweet with this id is deleted."""
    text: str
    """The text of the tweet, at most 280 characters; empty for a deletion."""
    at: int
    """The time of the tweet or of its deletion, in milliseconds since 1970 in UTC."""


class Tweeted(TypedDict):
    """A tweet in the central store. The row stays when the tweet is deleted, so that a repeated record does not restore it."""

    id: str
    """The id of the tweet."""
    author: str
    """The author of the tweet."""
    url: str | None
    """The URL that the tweet links to; null: the tweet is deleted."""
    text: str
    """The text of the tweet; empty if it is deleted."""
    at: int
    """The time of the tweet or of its deletion, in milliseconds since 1970 in UTC."""


class UserClick(TypedDict):
    """A user has clicked on a link."""

    id: str
    """UUID given by the emitter or its caller, by which a repeated request can be recognised. A plain string: the logical type uuid would create an object for each record read, which is not needed here."""
    user_id: str
    """The user who clicked; also the key of the record."""
    url: str
    """The URL that was clicked."""
    at: int
    """The time of the click, in milliseconds since 1970 in UTC. A plain number: the logical type timestamp-millis would create an object for each record read, which is not needed here."""


class UserStatus(TypedDict):
    """A user's latest status by its own time; a row of user-status-table."""

    status: str
    """The text of the status."""
    at: int
    """The time of the update, in milliseconds since 1970 in UTC."""
    id: str
    """UUID of the update that set the status; of two updates with the same time, the one with the greater UUID wins."""
    clicks: int
    """The click count of the user when the update was processed; 0: no clicks."""


class UserStatusChange(TypedDict):
    """A change of a user's status; the key of the record is the user's id."""

    id: str
    """UUID of the update that made the change."""
    old: str | None
    """The previous status; null: there was none."""
    new: str
    """The new status."""
    clicks: int
    """The click count of the user when the update was processed; 0: no clicks."""
    at: int
    """The time of the update, in milliseconds since 1970 in UTC."""


class UserStatusUpdate(TypedDict):
    """An update of a user's status."""

    id: str
    """UUID given by the emitter or its caller. A repeated update changes nothing, and of two updates with the same time the one with the greater id is the later one. A plain string: the logical type uuid would create an object for each record read, which is not needed here."""
    user_id: str
    """The user whose status it is; also the key of the record."""
    status: str
    """The text of the status, 1 to 280 characters."""
    at: int
    """The time of the update, in milliseconds since 1970 in UTC. Records may arrive out of order."""


class Verdict(TypedDict):
    """The verdict of a session on its user, who is the key of the record; a record of detector-verdicts."""

    session_end: int
    """The time of the last message of the session, in milliseconds since 1970 in UTC."""
    spammer: bool
    """Whether to block the user for all recipients."""
    closed: bool
    """Whether the session is closed: no more messages are added to it."""


BLOCK: RecordSchema[Block] = RecordSchema(
    row=Block,
    name='streamtable.messaging.Block',
    schema='{"type":"record","name":"Block","namespace":"streamtable.messaging","fields":[{"name":"by","type":["null","string"],"default":null},{"name":"blocked","type":"boolean"}]}',
    fingerprint=0x35ae793823429b1f,
    history=(
        '{"type":"record","name":"Block","namespace":"streamtable.messaging","fields":[{"name":"by","type":["null","string"],"default":null},{"name":"blocked","type":"boolean"}]}',
    ),
)


BLOCKED: RecordSchema[Blocked] = RecordSchema(
    row=Blocked,
    name='streamtable.messaging.Blocked',
    schema='{"type":"record","name":"Blocked","namespace":"streamtable.messaging","fields":[{"name":"everybody","type":"boolean"},{"name":"by","type":{"type":"array","items":"string"}}]}',
    fingerprint=0x9be4010b1003d112,
    history=(
        '{"type":"record","name":"Blocked","namespace":"streamtable.messaging","fields":[{"name":"everybody","type":"boolean"},{"name":"by","type":{"type":"array","items":"string"}}]}',
    ),
)


CATEGORIZED_STOCK: RecordSchema[CategorizedStock] = RecordSchema(
    row=CategorizedStock,
    name='streamtable.inventory.CategorizedStock',
    schema='{"type":"record","name":"CategorizedStock","namespace":"streamtable.inventory","fields":[{"name":"category","type":"string"},{"name":"quantity","type":"long"}]}',
    fingerprint=0xaa2194bc1e96db5d,
    history=(
        '{"type":"record","name":"CategorizedStock","namespace":"streamtable.inventory","fields":[{"name":"category","type":"string"},{"name":"quantity","type":"long"}]}',
    ),
)


CATEGORY_STOCK: RecordSchema[CategoryStock] = RecordSchema(
    row=CategoryStock,
    name='streamtable.inventory.CategoryStock',
    schema='{"type":"record","name":"CategoryStock","namespace":"streamtable.inventory","fields":[{"name":"items","type":"long"},{"name":"quantity","type":"long"}]}',
    fingerprint=0xb13ddf796c8b29cb,
    history=(
        '{"type":"record","name":"CategoryStock","namespace":"streamtable.inventory","fields":[{"name":"items","type":"long"},{"name":"quantity","type":"long"}]}',
    ),
)


FEED: RecordSchema[Feed] = RecordSchema(
    row=Feed,
    name='streamtable.messaging.Feed',
    schema='{"type":"record","name":"Feed","namespace":"streamtable.messaging","fields":[{"name":"messages","type":{"type":"array","items":{"type":"record","name":"Message","fields":[{"name":"id","type":"string"},{"name":"sender","type":"string"},{"name":"recipient","type":"string"},{"name":"text","type":"string"},{"name":"at","type":"long"}]}}}]}',
    fingerprint=0x0b74991c5b17db1d,
    history=(
        '{"type":"record","name":"Feed","namespace":"streamtable.messaging","fields":[{"name":"messages","type":{"type":"array","items":{"type":"record","name":"Message","fields":[{"name":"id","type":"string"},{"name":"sender","type":"string"},{"name":"recipient","type":"string"},{"name":"text","type":"string"},{"name":"at","type":"long"}]}}}]}',
    ),
)


FOLLOW: RecordSchema[Follow] = RecordSchema(
    row=Follow,
    name='streamtable.reach.Follow',
    schema='{"type":"record","name":"Follow","namespace":"streamtable.reach","fields":[{"name":"id","type":"string"},{"name":"author","type":"string"},{"name":"follower","type":"string"},{"name":"follows","type":"boolean"},{"name":"at","type":"long"}]}',
    fingerprint=0xc90bc710d54d13a0,
    history=(
        '{"type":"record","name":"Follow","namespace":"streamtable.reach","fields":[{"name":"id","type":"string"},{"name":"author","type":"string"},{"name":"follower","type":"string"},{"name":"follows","type":"boolean"},{"name":"at","type":"long"}]}',
    ),
)


ITEM_ORDERS: RecordSchema[ItemOrders] = RecordSchema(
    row=ItemOrders,
    name='streamtable.inventory.ItemOrders',
    schema='{"type":"record","name":"ItemOrders","namespace":"streamtable.inventory","fields":[{"name":"placed","type":"long"},{"name":"last","type":"string"},{"name":"error","type":"string"}]}',
    fingerprint=0xf809eb20b2885546,
    history=(
        '{"type":"record","name":"ItemOrders","namespace":"streamtable.inventory","fields":[{"name":"placed","type":"long"},{"name":"last","type":"string"},{"name":"error","type":"string"}]}',
    ),
)


JOB_RUN: RecordSchema[JobRun] = RecordSchema(
    row=JobRun,
    name='streamtable.console.JobRun',
    schema='{"type":"record","name":"JobRun","namespace":"streamtable.console","fields":[{"name":"run","type":"string"},{"name":"job","type":"string"},{"name":"group","type":"string","default":""},{"name":"as_group","type":"string","default":""},{"name":"lake","type":"string","default":""},{"name":"host","type":"string","default":""},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"finished_at","type":"long","default":0},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"stage","type":"string","default":""},{"name":"stages_done","type":"int","default":0},{"name":"stages","type":"int","default":0},{"name":"records","type":"long","default":0},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"JobInput","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"start","type":"long"},{"name":"end","type":"long"}]}}},{"name":"counts","type":{"type":"map","values":"long"},"default":{}},{"name":"differences","type":"long","default":-1},{"name":"keys","default":[],"type":{"type":"array","items":{"type":"record","name":"JobDifference","fields":[{"name":"partition","type":"int"},{"name":"key","type":"string"},{"name":"difference","type":"string"},{"name":"expected","type":"string","default":""},{"name":"live","type":"string","default":""}]}}},{"name":"summary","type":"string","default":""},{"name":"report","type":"string","default":""},{"name":"omitted","type":"int","default":0}]}',
    fingerprint=0x7b652d8faf397da9,
    history=(
        '{"type":"record","name":"JobRun","namespace":"streamtable.console","fields":[{"name":"run","type":"string"},{"name":"job","type":"string"},{"name":"group","type":"string","default":""},{"name":"as_group","type":"string","default":""},{"name":"lake","type":"string","default":""},{"name":"host","type":"string","default":""},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"finished_at","type":"long","default":0},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"stage","type":"string","default":""},{"name":"stages_done","type":"int","default":0},{"name":"stages","type":"int","default":0},{"name":"records","type":"long","default":0},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"JobInput","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"start","type":"long"},{"name":"end","type":"long"}]}}},{"name":"counts","type":{"type":"map","values":"long"},"default":{}},{"name":"differences","type":"long","default":-1},{"name":"keys","default":[],"type":{"type":"array","items":{"type":"record","name":"JobDifference","fields":[{"name":"partition","type":"int"},{"name":"key","type":"string"},{"name":"difference","type":"string"},{"name":"expected","type":"string","default":""},{"name":"live","type":"string","default":""}]}}},{"name":"summary","type":"string","default":""},{"name":"report","type":"string","default":""},{"name":"omitted","type":"int","default":0}]}',
    ),
)


MESSAGE: RecordSchema[Message] = RecordSchema(
    row=Message,
    name='streamtable.messaging.Message',
    schema='{"type":"record","name":"Message","namespace":"streamtable.messaging","fields":[{"name":"id","type":"string"},{"name":"sender","type":"string"},{"name":"recipient","type":"string"},{"name":"text","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0x09974df87eb8924a,
    history=(
        '{"type":"record","name":"Message","namespace":"streamtable.messaging","fields":[{"name":"id","type":"string"},{"name":"sender","type":"string"},{"name":"recipient","type":"string"},{"name":"text","type":"string"},{"name":"at","type":"long"}]}',
    ),
)


MESSAGE_COUNTS: RecordSchema[MessageCounts] = RecordSchema(
    row=MessageCounts,
    name='streamtable.messaging.MessageCounts',
    schema='{"type":"record","name":"MessageCounts","namespace":"streamtable.messaging","fields":[{"name":"sent","type":"long"},{"name":"received","type":"long"},{"name":"spammer","type":"boolean"}]}',
    fingerprint=0x3e386fd7aada625b,
    history=(
        '{"type":"record","name":"MessageCounts","namespace":"streamtable.messaging","fields":[{"name":"sent","type":"long"},{"name":"received","type":"long"},{"name":"spammer","type":"boolean"}]}',
    ),
)


PRICE: RecordSchema[Price] = RecordSchema(
    row=Price,
    name='streamtable.inventory.Price',
    schema='{"type":"record","name":"Price","namespace":"streamtable.inventory","fields":[{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"list_price","type":"long"},{"name":"percent","type":"int"},{"name":"price","type":"long"}]}',
    fingerprint=0x4624c390f44fd778,
    history=(
        '{"type":"record","name":"Price","namespace":"streamtable.inventory","fields":[{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"list_price","type":"long"},{"name":"percent","type":"int"},{"name":"price","type":"long"}]}',
    ),
)


PRICE_ADJUSTMENT: RecordSchema[PriceAdjustment] = RecordSchema(
    row=PriceAdjustment,
    name='streamtable.inventory.PriceAdjustment',
    schema='{"type":"record","name":"PriceAdjustment","namespace":"streamtable.inventory","fields":[{"name":"id","type":"string"},{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"percent","type":["null","int"],"default":null},{"name":"at","type":"long"}]}',
    fingerprint=0x48d64888d61a8ea1,
    history=(
        '{"type":"record","name":"PriceAdjustment","namespace":"streamtable.inventory","fields":[{"name":"id","type":"string"},{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"percent","type":["null","int"],"default":null},{"name":"at","type":"long"}]}',
    ),
)


PROCESS_STATUS: RecordSchema[ProcessStatus] = RecordSchema(
    row=ProcessStatus,
    name='streamtable.console.ProcessStatus',
    schema='{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"event_times","default":[],"type":{"type":"array","items":{"type":"record","name":"EventTimeStatus","fields":[{"name":"partition","type":"int"},{"name":"watermark","type":"long"},{"name":"due_behind_ms","type":"long","default":0}]}}},{"name":"due","default":[],"type":{"type":"array","items":{"type":"record","name":"DueStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"rows","type":"long","default":0},{"name":"late","type":"long","default":0},{"name":"late_share","type":"double","default":0},{"name":"moved_by","type":"string","default":""}]}}},{"name":"calls","default":[],"type":{"type":"array","items":{"type":"record","name":"CallStatus","fields":[{"name":"call","type":"string"},{"name":"pending","type":"long","default":0},{"name":"oldest_seconds","type":"double","default":0},{"name":"answered","type":"long","default":0},{"name":"rate","type":"double","default":0},{"name":"failed","type":"long","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"abort_reason","type":"string","default":""},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
    fingerprint=0x7d8c1c4674ebc754,
    history=(
        '{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
        '{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"event_times","default":[],"type":{"type":"array","items":{"type":"record","name":"EventTimeStatus","fields":[{"name":"partition","type":"int"},{"name":"watermark","type":"long"},{"name":"due_behind_ms","type":"long","default":0}]}}},{"name":"due","default":[],"type":{"type":"array","items":{"type":"record","name":"DueStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"rows","type":"long","default":0},{"name":"late","type":"long","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
        '{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"event_times","default":[],"type":{"type":"array","items":{"type":"record","name":"EventTimeStatus","fields":[{"name":"partition","type":"int"},{"name":"watermark","type":"long"},{"name":"due_behind_ms","type":"long","default":0}]}}},{"name":"due","default":[],"type":{"type":"array","items":{"type":"record","name":"DueStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"rows","type":"long","default":0},{"name":"late","type":"long","default":0},{"name":"late_share","type":"double","default":0},{"name":"moved_by","type":"string","default":""}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
        '{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"event_times","default":[],"type":{"type":"array","items":{"type":"record","name":"EventTimeStatus","fields":[{"name":"partition","type":"int"},{"name":"watermark","type":"long"},{"name":"due_behind_ms","type":"long","default":0}]}}},{"name":"due","default":[],"type":{"type":"array","items":{"type":"record","name":"DueStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"rows","type":"long","default":0},{"name":"late","type":"long","default":0},{"name":"late_share","type":"double","default":0},{"name":"moved_by","type":"string","default":""}]}}},{"name":"calls","default":[],"type":{"type":"array","items":{"type":"record","name":"CallStatus","fields":[{"name":"call","type":"string"},{"name":"pending","type":"long","default":0},{"name":"oldest_seconds","type":"double","default":0},{"name":"answered","type":"long","default":0},{"name":"rate","type":"double","default":0},{"name":"failed","type":"long","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"abort_reason","type":"string","default":""},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
    ),
)


PRODUCT: RecordSchema[Product] = RecordSchema(
    row=Product,
    name='streamtable.inventory.Product',
    schema='{"type":"record","name":"Product","namespace":"streamtable.inventory","fields":[{"name":"id","type":"string"},{"name":"product","type":"string"},{"name":"category","type":"string"},{"name":"price","type":"long"},{"name":"at","type":"long"}]}',
    fingerprint=0x66d952b657ca27ca,
    history=(
        '{"type":"record","name":"Product","namespace":"streamtable.inventory","fields":[{"name":"id","type":"string"},{"name":"product","type":"string"},{"name":"category","type":"string"},{"name":"price","type":"long"},{"name":"at","type":"long"}]}',
    ),
)


REACH: RecordSchema[Reach] = RecordSchema(
    row=Reach,
    name='streamtable.reach.Reach',
    schema='{"type":"record","name":"Reach","namespace":"streamtable.reach","fields":[{"name":"reach","type":"long"},{"name":"estimate","type":"double"},{"name":"sketch","type":"bytes"},{"name":"tweets","type":"long"},{"name":"authors","type":"long"},{"name":"top","type":{"type":"array","items":{"type":"record","name":"ReachAuthor","fields":[{"name":"author","type":"string"},{"name":"followers","type":"long"}]}}}]}',
    fingerprint=0x14732de9139b18d4,
    history=(
        '{"type":"record","name":"Reach","namespace":"streamtable.reach","fields":[{"name":"reach","type":"long"},{"name":"estimate","type":"double"},{"name":"sketch","type":"bytes"},{"name":"tweets","type":"long"},{"name":"authors","type":"long"},{"name":"top","type":{"type":"array","items":{"type":"record","name":"ReachAuthor","fields":[{"name":"author","type":"string"},{"name":"followers","type":"long"}]}}}]}',
    ),
)


REACH_FACT: RecordSchema[ReachFact] = RecordSchema(
    row=ReachFact,
    name='streamtable.reach.ReachFact',
    schema='{"type":"record","name":"ReachFact","namespace":"streamtable.reach","fields":[{"name":"author","type":"string"},{"name":"tweets","type":"long"},{"name":"added","type":{"type":"array","items":"string"}},{"name":"removed","type":{"type":"array","items":"string"}}]}',
    fingerprint=0xe228803acdbfe6a8,
    history=(
        '{"type":"record","name":"ReachFact","namespace":"streamtable.reach","fields":[{"name":"author","type":"string"},{"name":"tweets","type":"long"},{"name":"added","type":{"type":"array","items":"string"}},{"name":"removed","type":{"type":"array","items":"string"}}]}',
    ),
)


REACH_REBUILD: RecordSchema[ReachRebuild] = RecordSchema(
    row=ReachRebuild,
    name='streamtable.reach.ReachRebuild',
    schema='{"type":"record","name":"ReachRebuild","namespace":"streamtable.reach","fields":[{"name":"cursor","type":"string"}]}',
    fingerprint=0x504d17c52a92347f,
    history=(
        '{"type":"record","name":"ReachRebuild","namespace":"streamtable.reach","fields":[{"name":"cursor","type":"string"}]}',
    ),
)


REACH_STATE: RecordSchema[ReachState] = RecordSchema(
    row=ReachState,
    name='streamtable.reach.ReachState',
    schema='{"type":"record","name":"ReachState","namespace":"streamtable.reach","fields":[{"name":"url","type":"string"},{"name":"reach","type":"long"},{"name":"tweets","type":"long"},{"name":"authors","type":"long"},{"name":"bringing","type":"long"},{"name":"listed","type":{"type":"array","items":{"type":"record","name":"ReachAuthor","fields":[{"name":"author","type":"string"},{"name":"followers","type":"long"}]}}},{"name":"floor","type":"long"},{"name":"sketch","type":"bytes"},{"name":"forgotten","type":"long"},{"name":"next_sketch","type":["null","bytes"]},{"name":"next_cursor","type":"string"}]}',
    fingerprint=0x0970e112b459af71,
    history=(
        '{"type":"record","name":"ReachState","namespace":"streamtable.reach","fields":[{"name":"url","type":"string"},{"name":"reach","type":"long"},{"name":"tweets","type":"long"},{"name":"authors","type":"long"},{"name":"bringing","type":"long"},{"name":"listed","type":{"type":"array","items":{"type":"record","name":"ReachAuthor","fields":[{"name":"author","type":"string"},{"name":"followers","type":"long"}]}}},{"name":"floor","type":"long"},{"name":"sketch","type":"bytes"},{"name":"forgotten","type":"long"},{"name":"next_sketch","type":["null","bytes"]},{"name":"next_cursor","type":"string"}]}',
    ),
)


REACH_WORK: RecordSchema[ReachWork] = RecordSchema(
    row=ReachWork,
    name='streamtable.reach.ReachWork',
    schema='{"type":"record","name":"ReachWork","namespace":"streamtable.reach","fields":[{"name":"url","type":["null","string"]},{"name":"followers","type":{"type":"array","items":"string"}},{"name":"cursor","type":"string"}]}',
    fingerprint=0x118c90d5fbcee773,
    history=(
        '{"type":"record","name":"ReachWork","namespace":"streamtable.reach","fields":[{"name":"url","type":["null","string"]},{"name":"followers","type":{"type":"array","items":"string"}},{"name":"cursor","type":"string"}]}',
    ),
)


REORDER: RecordSchema[Reorder] = RecordSchema(
    row=Reorder,
    name='streamtable.inventory.Reorder',
    schema='{"type":"record","name":"Reorder","namespace":"streamtable.inventory","fields":[{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"quantity","type":"long"},{"name":"threshold","type":"long"},{"name":"movement","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0x2045e203b3c0d23b,
    history=(
        '{"type":"record","name":"Reorder","namespace":"streamtable.inventory","fields":[{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"quantity","type":"long"},{"name":"threshold","type":"long"},{"name":"movement","type":"string"},{"name":"at","type":"long"}]}',
    ),
)


STOCK: RecordSchema[Stock] = RecordSchema(
    row=Stock,
    name='streamtable.inventory.Stock',
    schema='{"type":"record","name":"Stock","namespace":"streamtable.inventory","fields":[{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"quantity","type":"long"},{"name":"threshold","type":"long"}]}',
    fingerprint=0x766e2d0b3b6adff0,
    history=(
        '{"type":"record","name":"Stock","namespace":"streamtable.inventory","fields":[{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"quantity","type":"long"},{"name":"threshold","type":"long"}]}',
    ),
)


STOCK_MOVEMENT: RecordSchema[StockMovement] = RecordSchema(
    row=StockMovement,
    name='streamtable.inventory.StockMovement',
    schema='{"type":"record","name":"StockMovement","namespace":"streamtable.inventory","fields":[{"name":"id","type":"string"},{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"kind","type":{"type":"enum","name":"MovementKind","symbols":["listed","shipped","sold"]}},{"name":"quantity","type":"long"},{"name":"at","type":"long"}]}',
    fingerprint=0x27ab6dda80e425e7,
    history=(
        '{"type":"record","name":"StockMovement","namespace":"streamtable.inventory","fields":[{"name":"id","type":"string"},{"name":"product","type":"string"},{"name":"warehouse","type":"string"},{"name":"kind","type":{"type":"enum","name":"MovementKind","symbols":["listed","shipped","sold"]}},{"name":"quantity","type":"long"},{"name":"at","type":"long"}]}',
    ),
)


TRAFFIC: RecordSchema[Traffic] = RecordSchema(
    row=Traffic,
    name='streamtable.messaging.Traffic',
    schema='{"type":"record","name":"Traffic","namespace":"streamtable.messaging","fields":[{"name":"sent","type":"long"},{"name":"received","type":"long"}]}',
    fingerprint=0x2ee8d6354ee6651d,
    history=(
        '{"type":"record","name":"Traffic","namespace":"streamtable.messaging","fields":[{"name":"sent","type":"long"},{"name":"received","type":"long"}]}',
    ),
)


TRANSLATION: RecordSchema[Translation] = RecordSchema(
    row=Translation,
    name='streamtable.messaging.Translation',
    schema='{"type":"record","name":"Translation","namespace":"streamtable.messaging","fields":[{"name":"replacement","type":["null","string"],"default":null}]}',
    fingerprint=0xdc3aa013682da1b4,
    history=(
        '{"type":"record","name":"Translation","namespace":"streamtable.messaging","fields":[{"name":"replacement","type":["null","string"],"default":null}]}',
    ),
)


TWEET: RecordSchema[Tweet] = RecordSchema(
    row=Tweet,
    name='streamtable.reach.Tweet',
    schema='{"type":"record","name":"Tweet","namespace":"streamtable.reach","fields":[{"name":"id","type":"string"},{"name":"author","type":"string"},{"name":"url","type":["null","string"]},{"name":"text","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0xa0b0792bd73eeb1c,
    history=(
        '{"type":"record","name":"Tweet","namespace":"streamtable.reach","fields":[{"name":"id","type":"string"},{"name":"author","type":"string"},{"name":"url","type":["null","string"]},{"name":"text","type":"string"},{"name":"at","type":"long"}]}',
    ),
)


TWEETED: RecordSchema[Tweeted] = RecordSchema(
    row=Tweeted,
    name='streamtable.reach.Tweeted',
    schema='{"type":"record","name":"Tweeted","namespace":"streamtable.reach","fields":[{"name":"id","type":"string"},{"name":"author","type":"string"},{"name":"url","type":["null","string"]},{"name":"text","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0x07ef00cb51d6bbad,
    history=(
        '{"type":"record","name":"Tweeted","namespace":"streamtable.reach","fields":[{"name":"id","type":"string"},{"name":"author","type":"string"},{"name":"url","type":["null","string"]},{"name":"text","type":"string"},{"name":"at","type":"long"}]}',
    ),
)


USER_CLICK: RecordSchema[UserClick] = RecordSchema(
    row=UserClick,
    name='streamtable.clicks.UserClick',
    schema='{"type":"record","name":"UserClick","namespace":"streamtable.clicks","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"string"},{"name":"url","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0x7523aefae057b5e4,
    history=(
        '{"type":"record","name":"UserClick","namespace":"streamtable.clicks","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"string"},{"name":"url","type":"string"},{"name":"at","type":"long"}]}',
    ),
)


USER_STATUS: RecordSchema[UserStatus] = RecordSchema(
    row=UserStatus,
    name='streamtable.status.UserStatus',
    schema='{"type":"record","name":"UserStatus","namespace":"streamtable.status","fields":[{"name":"status","type":"string"},{"name":"at","type":"long"},{"name":"id","type":"string"},{"name":"clicks","type":"long"}]}',
    fingerprint=0x09dbcd4ef85e7d09,
    history=(
        '{"type":"record","name":"UserStatus","namespace":"streamtable.status","fields":[{"name":"status","type":"string"},{"name":"at","type":"long"},{"name":"id","type":"string"},{"name":"clicks","type":"long"}]}',
    ),
)


USER_STATUS_CHANGE: RecordSchema[UserStatusChange] = RecordSchema(
    row=UserStatusChange,
    name='streamtable.status.UserStatusChange',
    schema='{"type":"record","name":"UserStatusChange","namespace":"streamtable.status","fields":[{"name":"id","type":"string"},{"name":"old","type":["null","string"],"default":null},{"name":"new","type":"string"},{"name":"clicks","type":"long"},{"name":"at","type":"long"}]}',
    fingerprint=0x104f20920df0eb6a,
    history=(
        '{"type":"record","name":"UserStatusChange","namespace":"streamtable.status","fields":[{"name":"id","type":"string"},{"name":"old","type":["null","string"],"default":null},{"name":"new","type":"string"},{"name":"clicks","type":"long"},{"name":"at","type":"long"}]}',
    ),
)


USER_STATUS_UPDATE: RecordSchema[UserStatusUpdate] = RecordSchema(
    row=UserStatusUpdate,
    name='streamtable.status.UserStatusUpdate',
    schema='{"type":"record","name":"UserStatusUpdate","namespace":"streamtable.status","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"string"},{"name":"status","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0x3d73d7410960449c,
    history=(
        '{"type":"record","name":"UserStatusUpdate","namespace":"streamtable.status","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"string"},{"name":"status","type":"string"},{"name":"at","type":"long"}]}',
    ),
)


VERDICT: RecordSchema[Verdict] = RecordSchema(
    row=Verdict,
    name='streamtable.messaging.Verdict',
    schema='{"type":"record","name":"Verdict","namespace":"streamtable.messaging","fields":[{"name":"session_end","type":"long"},{"name":"spammer","type":"boolean"},{"name":"closed","type":"boolean"}]}',
    fingerprint=0xa46f360a7e15a2c9,
    history=(
        '{"type":"record","name":"Verdict","namespace":"streamtable.messaging","fields":[{"name":"session_end","type":"long"},{"name":"spammer","type":"boolean"},{"name":"closed","type":"boolean"}]}',
    ),
)

"""Typed records, generated from proto/avro by libs/contracts/generate.py. Do not edit."""

from typing import Literal, TypedDict

from contracts.schema import RecordSchema


class Block(TypedDict):
    """Messages of a sender are to be dropped, or delivered again; the key of the record is the sender's id."""

    by: str | None
    """The recipient who refuses them; null: they are dropped for all recipients, as the detector decides about a spammer."""
    blocked: bool
    """False takes the same block back."""


class Blocked(TypedDict):
    """The recipients who get no messages of a sender; a row of blocker-table. A sender who is not blocked has no row."""

    everybody: bool
    """They are dropped for all recipients."""
    by: list[str]
    """The recipients who have blocked the sender, in the order of their ids."""


class CategorizedStock(TypedDict):
    """The stock of a product in a warehouse with the category of the product, on its way to the totals."""

    category: str
    """The category of the product."""
    quantity: int
    """Pieces in stock."""


class CategoryStock(TypedDict):
    """The stock of all products of a category in all warehouses. The key is the category."""

    items: int
    """How many products are stocked; one in two warehouses counts twice."""
    quantity: int
    """Pieces in stock, of all of them."""


class Message(TypedDict):
    """One user has written to another."""

    id: str
    """UUID given by the service or its caller, so that a repeated message can be recognised."""
    sender: str
    """Who wrote it; the key of the record before it is filtered."""
    recipient: str
    """Whom it is for; the key of the record after it was filtered."""
    text: str
    """What was written; after the filter, with the words that were replaced."""
    at: int
    """When the service took it: milliseconds since 1970 in UTC."""


class Feed(TypedDict):
    """The latest messages that a user was sent; a row of collector-table."""

    messages: list[Message]
    """In the order in which they came, the oldest first."""


class Follow(TypedDict):
    """A user follows an author, or stops following."""

    id: str
    """UUID given by the emitter or its caller, so that the event can be found again."""
    author: str
    """Who is followed; also the key of the record."""
    follower: str
    """Who follows."""
    follows: bool
    """False: no longer."""
    at: int
    """When: milliseconds since 1970 in UTC. The latest of an author and a follower counts, in whatever order they come; of two of one time the one that says true."""


class JobInput(TypedDict):
    """One partition of a topic."""

    topic: str
    partition: int
    start: int
    """The first offset that is read."""
    end: int
    """The offset behind the last one."""


class JobDifference(TypedDict):
    """A key whose row is not as computed."""

    partition: int
    key: str
    """As text, with bytes that are no text in hexadecimal digits."""
    difference: str
    """missing, extra, different, unreadable, or overwritten: of which nothing is known any more."""
    expected: str
    """The computed row as JSON; empty if there should be none."""
    live: str
    """The row in the table as JSON, or its bytes in hexadecimal digits; empty if there is none."""


class JobRun(TypedDict):
    """What a run of a batch job tells of itself, keyed by run: at its start, while it runs, and once more at its end."""

    run: str
    """Names the run; also the key of the record."""
    job: str
    """Which job: etl, maintain, backfill, rebuild, reconcile and so on."""
    group: str
    """Whose table is computed or audited; empty if it is about no group."""
    as_group: str
    """Whose table a rebuild writes; empty if it is none."""
    lake: str
    """Folder of the lake that it reads or writes; empty if there is none."""
    host: str
    """Name of the machine or container of its driver."""
    version: str
    """Of the jobs' code."""
    started_at: int
    """Milliseconds since 1970 in UTC."""
    at: int
    """When this was found so, in milliseconds since 1970 in UTC; a run says so at least every ten seconds, so one that is running and older than a minute was killed."""
    finished_at: int
    """Milliseconds since 1970 in UTC; 0: it has not ended."""
    state: str
    """running, done, different (an audit has found differences), failed or interrupted."""
    error: str
    """What went wrong and what to do, if it failed."""
    stage: str
    """What it does now, in a few words."""
    stages_done: int
    """How many of its stages are done."""
    stages: int
    """How many it has in all."""
    records: int
    """Read so far."""
    inputs: list[JobInput]
    """What it reads from Kafka, up to which offset; known once it has looked."""
    counts: dict[str, int]
    """What it has come to so far, by name: events, rows, quarantined records."""
    differences: int
    """Keys whose row is not as the inputs say; -1: it is no audit, or not so far."""
    keys: list[JobDifference]
    """The first of these keys."""
    summary: str
    """Its result in one sentence."""
    report: str
    """Where its report or manifest is; empty if there is none."""
    omitted: int
    """Entries of inputs and keys that were too many to send."""


class MessageCounts(TypedDict):
    """How much a user has written and was written to in a session; a row of detector-by-user-sessions."""

    sent: int
    """Messages to others."""
    received: int
    """Messages from others, those included that were dropped."""
    spammer: bool
    """The counts say so: much was sent, and little received."""


class Price(TypedDict):
    """The adjusted price of a product in a warehouse. The key is <product>@<warehouse>."""

    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    list_price: int
    """The list price in cents."""
    percent: int
    """What is added to it, in percent."""
    price: int
    """The price in cents, rounded down."""


class PriceAdjustment(TypedDict):
    """A warehouse sells a product at another price. The key is <product>@<warehouse>."""

    id: str
    """UUID given by the emitter or its caller. A repeated event changes nothing."""
    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    percent: int | None
    """What is added to the list price, in percent; null: the adjustment ends."""
    at: int
    """When it happened: milliseconds since 1970 in UTC."""


class PartitionStatus(TypedDict):
    """One partition of the group in this process."""

    partition: int
    state: str
    """recovering or working."""
    remaining: int
    """Changelog offsets still to read."""
    total: int
    """The most that there were to read."""


class InputStatus(TypedDict):
    """One partition of a topic that is read."""

    topic: str
    partition: int
    lag: int
    """Offsets to the end; -1: not known yet."""
    records: int
    """Read since the start."""


class FlowStatus(TypedDict):
    """All partitions of a topic together, in one direction."""

    topic: str
    direction: str
    """in or out."""
    records: int
    """Since the start."""
    rate: float
    """Records a second, over the last ten seconds."""


class CopyStatus(TypedDict):
    """A copy of a table."""

    table: str
    partitions: int
    age_seconds: float
    """Since its oldest partition was current."""


class EventTimeStatus(TypedDict):
    """The event time of one partition of the group."""

    partition: int
    watermark: int
    """Milliseconds since 1970 in UTC."""
    due_behind_ms: int
    """How far rows that are due are behind it."""


class DueStatus(TypedDict):
    """One partition of such a state table."""

    topic: str
    partition: int
    rows: int
    """Rows that have not fallen due, as last counted."""
    late: int
    """Records that came too late, since the start."""


class ProcessStatus(TypedDict):
    """What a process tells of itself, keyed by group or service, role and instance; the process deletes it when it stops in order."""

    service: str
    """Whose process it is: the name of its command."""
    role: str
    """What it does for the service: processor, view, query, emitter and so on."""
    group: str
    """The group it processes; empty if it processes none."""
    instance: str
    """Names the process among those of the same role."""
    host: str
    """Name of its machine or container."""
    pid: int
    """Its number on that machine."""
    version: str
    """Of the service."""
    started_at: int
    """Milliseconds since 1970 in UTC."""
    at: int
    """When this was found so: milliseconds since 1970 in UTC."""
    state: str
    """starting, recovering, ready or failed."""
    error: str
    """Kind and place of the error that ended it."""
    graph: str
    """JSON: what its group reads, keeps and writes."""
    partitions: list[PartitionStatus]
    """Of the group, those that are here."""
    inputs: list[InputStatus]
    """What it reads."""
    flows: list[FlowStatus]
    """How fast records come from topics and go to topics."""
    copies: list[CopyStatus]
    """Whole tables that it holds: views and looked-up tables."""
    event_times: list[EventTimeStatus]
    """How far event time has come, in each partition of a group that follows it."""
    due: list[DueStatus]
    """State tables whose rows fall due: windows and timers."""
    emits: list[str]
    """Topics that it emits to."""
    commits: int
    """Since the start."""
    committed_at: int
    """When the last one was noticed; 0: never."""
    commit_ms: float
    """Mean duration of the latest commits."""
    dead_letters: int
    """Since the start."""
    aborts: int
    """Transactions given up since the start."""
    rebalances: int
    """Callbacks since the start."""
    requests: int
    """Over HTTP since the start."""
    failed_requests: int
    """Answered with 500 and above since the start."""
    request_rate: float
    """Requests a second, over the last ten seconds."""
    memory_bytes: int
    """Resident."""
    store_bytes: int
    """Of tables, on disk and in memory."""
    omitted: int
    """Entries of the lists above that were too many to send."""


class Product(TypedDict):
    """What is known of a product; the last one that was written counts. The key is the product."""

    id: str
    """UUID given by the emitter or its caller. A repeated event changes nothing."""
    product: str
    """The product: lower-case letters, digits and hyphens."""
    category: str
    """The category: lower-case letters, digits and hyphens."""
    price: int
    """The list price in cents."""
    at: int
    """When it happened: milliseconds since 1970 in UTC."""


class ReachAuthor(TypedDict):
    """How many followers one author brings to a URL."""

    author: str
    """Id of the author."""
    followers: int
    """All who follow the author, also if they follow other authors."""


class Reach(TypedDict):
    """The reach of a URL, which is the key; a row of tweet-reach-table. A URL that is in no tweet has no row."""

    reach: int
    """How many distinct users follow an author who tweeted it."""
    estimate: float
    """The same as the sketch has it."""
    sketch: bytes
    """Of the users reached: an HLL sketch of Apache DataSketches with 4,096 registers, which others can merge."""
    tweets: int
    """How many tweets link to it."""
    authors: int
    """How many authors have such a tweet."""
    top: list[ReachAuthor]
    """The authors who bring most followers, at most 10, the highest first."""


class ReachFact(TypedDict):
    """What an author brings to a URL, which is the key of the record: as it is now, not by how much it differs, so a repeated fact changes nothing."""

    author: str
    """Who tweeted the URL."""
    tweets: int
    """How many tweets of the author link to the URL; 0: none any more."""
    added: list[str]
    """Followers whom the author brings; together with `removed` at most 1,000."""
    removed: list[str]
    """Followers whom the author does not bring, or not any more."""


class ReachRebuild(TypedDict):
    """The sketch of a URL, which is the key of the record, is being rebuilt: sent by the second stage to itself."""

    cursor: str
    """Where to go on: hexadecimal digits, the beginning of a follower's hash."""


class ReachState(TypedDict):
    """What is known of a URL beside its pieces, in the central store."""

    url: str
    """Itself; the key of the row is a hash."""
    reach: int
    """How many distinct users follow an author who tweeted it."""
    tweets: int
    """How many tweets link to it."""
    authors: int
    """How many authors have such a tweet."""
    bringing: int
    """How many authors bring a follower."""
    listed: list[ReachAuthor]
    """The authors who bring most, at most 100, the highest first."""
    floor: int
    """No author who is not listed brings more followers."""
    sketch: bytes
    """Of the users reached: an HLL sketch of Apache DataSketches."""
    forgotten: int
    """How many users have ceased to be reached since the sketch was begun; it cannot forget them."""
    next_sketch: bytes | None
    """The sketch that is being rebuilt; null: none is."""
    next_cursor: str
    """Where the making of that one goes on."""


class ReachWork(TypedDict):
    """The updates of an author, who is the key of the record, that are still to be sent: by the first stage to itself."""

    url: str | None
    """The URL for which all followers are to be sent; null: the `followers` are to be sent for all URLs of the author."""
    followers: list[str]
    """At most 1,000; empty where a URL is given."""
    cursor: str
    """Where to go on: hexadecimal digits, the beginning of a name's hash; empty: at the first."""


class Reorder(TypedDict):
    """The stock of a product in a warehouse has fallen below its threshold. The key is <product>@<warehouse>."""

    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    quantity: int
    """Pieces that were left."""
    threshold: int
    """The threshold at that time."""
    movement: str
    """The id of the movement by which the stock fell."""
    at: int
    """When that happened: milliseconds since 1970 in UTC."""


class Stock(TypedDict):
    """How many pieces of a product a warehouse has. The key is <product>@<warehouse>."""

    product: str
    """The product: lower-case letters, digits and hyphens."""
    warehouse: str
    """The warehouse: lower-case letters, digits and hyphens."""
    quantity: int
    """Pieces in stock; below zero: more were sold than came."""
    threshold: int
    """The product is ordered again when the quantity falls below it."""


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
    """listed: the warehouse stocks the product from now on, or changes its threshold."""
    quantity: int
    """How many pieces were shipped or sold, at least 1; of a listing the threshold below which the product is ordered again."""
    at: int
    """When it happened: milliseconds since 1970 in UTC."""


class Traffic(TypedDict):
    """What is to be added to the counts of a user, who is the key of the record, in detector-by-user."""

    sent: int
    """Messages to others."""
    received: int
    """Messages from others."""


class Translation(TypedDict):
    """What is to stand in messages for a word, which is the key of the record, in its folded form."""

    replacement: str | None
    """Null: the word stays as it is from now on."""


class Tweet(TypedDict):
    """An author has tweeted a URL, or has deleted such a tweet."""

    id: str
    """UUID given by the emitter or its caller. A repeated id of the same author counts once, and never again after it was deleted."""
    author: str
    """Who tweeted; also the key of the record."""
    url: str | None
    """What the tweet links to, compared character by character; null: the tweet with this id is deleted."""
    text: str
    """What the tweet says: at most 280 characters; empty for a deletion."""
    at: int
    """When it was tweeted or deleted: milliseconds since 1970 in UTC."""


class Tweeted(TypedDict):
    """A tweet, in the central store; it stays when the tweet is deleted, so that a repeated record does not bring it back."""

    id: str
    """Of the tweet."""
    author: str
    """Who tweeted."""
    url: str | None
    """What it links to; null: it is deleted."""
    text: str
    """What it says; empty when it is deleted."""
    at: int
    """When it was tweeted or deleted: milliseconds since 1970 in UTC."""


class UserClick(TypedDict):
    """A user has clicked on a link."""

    id: str
    """UUID given by the emitter or its caller, so that a repeated request can be recognised. Plain text: the logical type uuid would make an object of each one read, which is not needed here."""
    user_id: str
    """Who clicked; also the key of the record."""
    url: str
    """What was clicked on."""
    at: int
    """When: milliseconds since 1970 in UTC. Plain number: the logical type timestamp-millis would make an object of each one read, which is not needed here."""


class UserStatus(TypedDict):
    """A user's latest status by its own time; a row of user-status-table."""

    status: str
    """What the user said."""
    at: int
    """When: milliseconds since 1970 in UTC."""
    id: str
    """UUID of the update that it comes from, which decides between two of the same time."""
    clicks: int
    """Clicks of the user that were counted when the update was processed; 0: none."""


class UserStatusChange(TypedDict):
    """A user's status has become another one; the key of the record is the user's id."""

    id: str
    """UUID of the update that made the change."""
    old: str | None
    """The status before; null: there was none."""
    new: str
    """The status now."""
    clicks: int
    """Clicks of the user that were counted when the update was processed; 0: none."""
    at: int
    """When the user said it: milliseconds since 1970 in UTC."""


class UserStatusUpdate(TypedDict):
    """A user has said what they are doing."""

    id: str
    """UUID given by the emitter or its caller. A repeated update changes nothing, and of two updates of the same time the greater id is the later one. Plain text: the logical type uuid would make an object of each one read, which is not needed here."""
    user_id: str
    """Whose status; also the key of the record."""
    status: str
    """What the user says: 1 to 280 characters."""
    at: int
    """When the user said it: milliseconds since 1970 in UTC. Records may come in another order."""


class Verdict(TypedDict):
    """What a session says of its user, who is the key of the record, in detector-verdicts."""

    session_end: int
    """When its last message was taken: milliseconds since 1970 in UTC."""
    spammer: bool
    """The user is to be blocked for everybody."""
    closed: bool
    """No message is added to the session any more."""


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
    schema='{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"event_times","default":[],"type":{"type":"array","items":{"type":"record","name":"EventTimeStatus","fields":[{"name":"partition","type":"int"},{"name":"watermark","type":"long"},{"name":"due_behind_ms","type":"long","default":0}]}}},{"name":"due","default":[],"type":{"type":"array","items":{"type":"record","name":"DueStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"rows","type":"long","default":0},{"name":"late","type":"long","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
    fingerprint=0xc2ce2780f5d0d5af,
    history=(
        '{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
        '{"type":"record","name":"ProcessStatus","namespace":"streamtable.console","fields":[{"name":"service","type":"string"},{"name":"role","type":"string"},{"name":"group","type":"string","default":""},{"name":"instance","type":"string"},{"name":"host","type":"string","default":""},{"name":"pid","type":"int","default":0},{"name":"version","type":"string","default":""},{"name":"started_at","type":"long"},{"name":"at","type":"long"},{"name":"state","type":"string"},{"name":"error","type":"string","default":""},{"name":"graph","type":"string","default":""},{"name":"partitions","default":[],"type":{"type":"array","items":{"type":"record","name":"PartitionStatus","fields":[{"name":"partition","type":"int"},{"name":"state","type":"string"},{"name":"remaining","type":"long","default":0},{"name":"total","type":"long","default":0}]}}},{"name":"inputs","default":[],"type":{"type":"array","items":{"type":"record","name":"InputStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"lag","type":"long","default":-1},{"name":"records","type":"long","default":0}]}}},{"name":"flows","default":[],"type":{"type":"array","items":{"type":"record","name":"FlowStatus","fields":[{"name":"topic","type":"string"},{"name":"direction","type":"string"},{"name":"records","type":"long","default":0},{"name":"rate","type":"double","default":0}]}}},{"name":"copies","default":[],"type":{"type":"array","items":{"type":"record","name":"CopyStatus","fields":[{"name":"table","type":"string"},{"name":"partitions","type":"int","default":0},{"name":"age_seconds","type":"double","default":0}]}}},{"name":"event_times","default":[],"type":{"type":"array","items":{"type":"record","name":"EventTimeStatus","fields":[{"name":"partition","type":"int"},{"name":"watermark","type":"long"},{"name":"due_behind_ms","type":"long","default":0}]}}},{"name":"due","default":[],"type":{"type":"array","items":{"type":"record","name":"DueStatus","fields":[{"name":"topic","type":"string"},{"name":"partition","type":"int"},{"name":"rows","type":"long","default":0},{"name":"late","type":"long","default":0}]}}},{"name":"emits","type":{"type":"array","items":"string"},"default":[]},{"name":"commits","type":"long","default":0},{"name":"committed_at","type":"long","default":0},{"name":"commit_ms","type":"double","default":0},{"name":"dead_letters","type":"long","default":0},{"name":"aborts","type":"long","default":0},{"name":"rebalances","type":"long","default":0},{"name":"requests","type":"long","default":0},{"name":"failed_requests","type":"long","default":0},{"name":"request_rate","type":"double","default":0},{"name":"memory_bytes","type":"long","default":0},{"name":"store_bytes","type":"long","default":0},{"name":"omitted","type":"int","default":0}]}',
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

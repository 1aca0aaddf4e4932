"""Query the tables of a group in the processes that keep them: any process asks for any key.

`advertise` and `QueryServer` let the processors of a process answer; `Query` asks them.
"""

from streamtable_query.address import QueryAddress, advertise
from streamtable_query.answers import PartitionMoved, QueryAnswer
from streamtable_query.metrics import QueryMetrics
from streamtable_query.query import Query
from streamtable_query.ranges import QueryRange, RangePart
from streamtable_query.remote_table import RemoteTable
from streamtable_query.server import QueryServer, add_query_service
from streamtable_query.shared_view import SharedView

__all__ = [
    "PartitionMoved",
    "Query",
    "QueryAddress",
    "QueryAnswer",
    "QueryMetrics",
    "QueryRange",
    "QueryServer",
    "RangePart",
    "RemoteTable",
    "SharedView",
    "add_query_service",
    "advertise",
]

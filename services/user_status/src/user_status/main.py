"""The command line: `user-status emitter|load|processor|view|query`. Settings come from the environment."""

from typing import Final

from contracts.records import UserStatus
from servicekit.process.runtime import Program
from servicekit.process.table_service import TableService, Texts
from streamtable import Group
from user_status import topics
from user_status.emitter import EMITTER
from user_status.load import updates
from user_status.query import Tables, build_query
from user_status.settings import StatusSettings
from user_status.view import CONTRACT


def group_of(settings: StatusSettings) -> Group[str, UserStatus]:
    """Return the group that the settings name."""
    return topics.statuses(settings.group, settings.clicks_group, settings.max_ahead_seconds)


SERVICE: Final = TableService(
    Program("user-status", StatusSettings, topics.UPDATES.name),
    module="user_status.main",
    texts=Texts(
        service="Keeps what users say they are doing, joined with their clicks: four services and a load generator.",
        emitter="Accept statuses over REST (PUT /users/{user}/status) on STREAMTABLE_HTTP_ADDRESS and write them to Kafka.",
        load="Write generated statuses to Kafka and report the acknowledged rate.",
        processor="Keep the latest status of each user: from user-status-updates to the table user-status-table.",
        query="Answer REST from local copies of the tables of statuses and clicks, on STREAMTABLE_HTTP_ADDRESS.",
    ),
    streams=[topics.UPDATES],
    what="updates",
    load=updates,
    group=group_of,
    tables=lambda settings: {
        topics.UPDATES.name: group_of(settings).table,
        topics.USER_CLICKS: topics.click_counts(settings.clicks_group),
    },
    emitter=EMITTER,
    view=CONTRACT,
    query=lambda query: build_query(
        Tables(*query.views),
        query.cursors,
        query.events,
        query.writes,
        metrics=query.runtime.metrics,
        edge=query.edge,
    ),
)
app: Final = SERVICE.command_line()


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()

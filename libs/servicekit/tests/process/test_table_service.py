from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from servicekit.grpc.table_service import TableContract
from servicekit.http.emitter_api import EmitterApi
from servicekit.http.models import answer_model
from servicekit.http.table_api import GetRow, TableApi
from servicekit.process.load import LoadOptions
from servicekit.process.runtime import Program
from servicekit.process.service_settings import ServiceSettings
from servicekit.process.table_service import TableService, Texts
from streamtable import Count, Group, Input, Json, Long, Persist, Stream, String, Table

VOTES: Stream[str, Any] = Stream("vote-events", key=String(), value=Json())


class VoteSettings(ServiceSettings):
    env_prefix: ClassVar[str] = "VOTES_"
    group: str = "votes"


class UserVotes(BaseModel):
    user_id: str
    votes: int


ANSWER = answer_model("UserVotesAnswer", "Votes.", UserVotes)


def group_of(settings: VoteSettings) -> Group[str, int]:
    return Group(settings.group, Input(VOTES, aggregate=Count()), Persist(Long()))


SERVICE: TableService[VoteSettings, int] = TableService(
    Program("votes", VoteSettings, VOTES.name),
    module="votes",
    texts=Texts("Counts votes."),
    streams=[VOTES],
    what="votes",
    group=group_of,
    emitter=EmitterApi("votes emitter", "1.0.0", "Takes votes.", "votes", []),
    query=TableApi(
        title="votes query",
        version="1.0.0",
        text="Votes.",
        members=lambda count: {"votes": count},
        event="votes",
        events_text="Events `votes`.",
        routes=[GetRow("/votes/{user}", "get_votes", "One user.", "votes", ANSWER)],
    ),
)
COMPLETE = replace(
    SERVICE,
    view=TableContract(pb.DESCRIPTOR.services_by_name["ClickCounts"], "count", int, "no votes are known"),
    load=lambda load, now_ms: iter([("alice", {"at": now_ms()})] * load.keys),
)


def commands_of(service: TableService[VoteSettings, int]) -> list[str | None]:
    return [command.name for command in service.command_line().registered_commands]


def test_a_service_has_the_commands_of_its_declared_parts() -> None:
    assert commands_of(SERVICE) == ["emitter", "processor", "query"]
    assert commands_of(COMPLETE) == ["emitter", "load", "processor", "view", "query"]


def test_the_help_of_each_command_names_the_variables_of_the_service() -> None:
    for command in commands_of(COMPLETE):
        result = CliRunner().invoke(COMPLETE.command_line(), [str(command), "--help"], terminal_width=200)
        assert result.exit_code == 0
        assert "VOTES_GROUP" in result.output


def test_each_load_has_a_seed_of_its_own_unless_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups count an id once in 24 hours: of a second load with the same seed they would count nothing."""
    seeds: list[int] = []

    def sent(_: object, __: object, load: LoadOptions) -> int:
        seeds.append(load.seed)
        return 0

    monkeypatch.setattr(TableService, "send_load", sent)
    for arguments in ([], [], ["--seed", "7"]):
        assert CliRunner().invoke(COMPLETE.command_line(), ["load", *arguments]).exit_code == 0
    assert len(set(seeds)) == 3
    assert seeds[2] == 7


def test_the_table_of_the_group_is_queried_by_default() -> None:
    settings = VoteSettings(group="votes-2")
    assert {topic: table.name for topic, table in SERVICE.tables_of(settings).items()} == {
        "vote-events": "votes-2-table"
    }
    other: Table[str, int] = Table("other", key=String(), value=Long())
    named = replace(SERVICE, tables=lambda _: {"events": other})
    assert named.tables_of(settings) == {"events": other}


def test_invalid_settings_end_a_command_with_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOTES_GROPU", "a")
    result = CliRunner().invoke(SERVICE.command_line(), ["query"])
    assert result.exit_code == 2

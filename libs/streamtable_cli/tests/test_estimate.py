"""The model of `streamtable capacity`: its arithmetic, its monotonicity, and a simulation of changed rows."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable_admin.errors import Refused
from streamtable_cli.estimate import Measured, Workload, changed_rows, estimate, processes_for, record_us

MEASURED = Measured(
    record_us=1.0,
    row_us=3.0,
    load_us=4.0,
    call_us=1.5,
    idle_cores=0.2,
    busy_cores=1.0,
    restore_rows_s=500_000.0,
    kafka_us=2.0,
    where="nowhere",
)
LOADS = st.builds(
    Workload,
    records_s=st.floats(1.0, 1e8),
    keys=st.integers(1_000, 2_000_000_000),
    partitions=st.integers(1, 5_000),
    replicas=st.integers(1, 3),
    value_bytes=st.integers(0, 10_000),
    active_keys=st.none() | st.integers(1, 1_000),
    handler_us=st.sampled_from([0.0, 5.0]),
    commit_s=st.floats(0.05, 10.0),
    views=st.integers(0, 5),
    standby=st.booleans(),
)
FACTORS = st.floats(1.0, 100.0)


@given(LOADS, FACTORS)
def test_more_records_never_take_fewer_processes_processors_or_bytes(load: Workload, factor: float) -> None:
    less, more = (
        estimate(each, MEASURED) for each in (load, replace(load, records_s=load.records_s * factor))
    )
    assert more.processes >= less.processes
    assert more.changelog_records_s >= less.changelog_records_s * (1 - 1e-9)
    assert more.brokers_in_mb_s >= less.brokers_in_mb_s * (1 - 1e-9)
    assert more.input_gb >= less.input_gb


@given(LOADS, FACTORS)
def test_more_keys_never_take_fewer_processes_or_a_smaller_disk(load: Workload, factor: float) -> None:
    more = replace(load, keys=int(load.keys * factor))
    assert processes_for(more, MEASURED) >= processes_for(load, MEASURED)
    assert estimate(more, MEASURED).table_gb >= estimate(load, MEASURED).table_gb


@given(LOADS, FACTORS)
def test_a_longer_commit_interval_never_takes_more_processes(load: Workload, factor: float) -> None:
    longer = replace(load, commit_s=load.commit_s * factor)
    assert processes_for(longer, MEASURED) <= processes_for(load, MEASURED)


@given(LOADS)
def test_the_processes_use_at_most_half_of_their_capacity_and_one_fewer_would_exceed_it(
    load: Workload,
) -> None:
    def used(processes: int) -> float:
        return load.records_s * record_us(load, MEASURED, processes)[0] / 1e6 / processes

    carrying = processes_for(load, MEASURED)
    assert used(carrying) <= 0.5 * (1 + 1e-9)
    if carrying > 1:
        assert used(carrying - 1) > 0.5 * (1 - 1e-9)
    assert estimate(load, MEASURED).processes == carrying + 1


@given(LOADS)
def test_every_number_is_finite_and_limits_are_sorted_by_use(load: Workload) -> None:
    found = estimate(load, MEASURED)
    numbers = [value for value in vars(found).values() if isinstance(value, int | float)]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert 0 <= found.loaded <= found.changed <= 1 + 1e-9
    assert found.warm_s <= found.cold_s
    used = [limit.used for limit in found.limits]
    assert used == sorted(used, reverse=True)


@pytest.mark.parametrize(
    ("keys", "records"), [(1_000, 200), (1_000, 1_000), (1_000, 20_000), (50_000, 20_000)]
)
def test_rows_that_a_commit_writes_are_as_many_as_in_a_simulation(keys: int, records: int) -> None:
    random = Random(3)
    commits = [len({random.randrange(keys) for _ in range(records)}) for _ in range(20)]
    assert changed_rows(keys, records) == pytest.approx(sum(commits) / len(commits), rel=0.03)


def test_a_load_worked_out_by_hand() -> None:
    load = Workload(
        100_000, 10_000_000, partitions=12, replicas=2, record_bytes=90, key_bytes=10, value_bytes=20
    )
    found = estimate(replace(load, active_keys=1_000, retention_h=10, lag_s=0), MEASURED)
    # 20,000 records per commit cover all 1,000 keys: a twentieth of them changes a row, and all rows are in memory.
    assert found.changed == pytest.approx(0.05)
    assert found.loaded == 0
    assert found.record_us == pytest.approx(1 + 0.05 * 3)
    # 869,565 records/s at most, half of it planned: one process, and one that may be down.
    assert found.processes == 2
    assert found.cores == pytest.approx(2 * 0.2 + 0.115)
    assert found.table_gb == pytest.approx(0.4)
    assert found.changelog_records_s == pytest.approx(5_000)
    assert found.changelog_mb_s == pytest.approx(5_000 * 40 / 1e6)
    assert found.changelog_gb == pytest.approx(20_000_000 * 40 * 2 / 1e9)
    assert found.input_gb == pytest.approx(100_000 * 100 * 36_000 * 2 / 1e9)
    assert found.kafka_cores == pytest.approx(0.2)
    # 45 s, and 20 million records at 500,000/s; what comes meanwhile is an eighth or so of what it can do.
    assert found.cold_s == pytest.approx(85 * (1 + 100_000 / (1e6 / 1.15 - 100_000)))
    assert found.warm_s < found.cold_s


def test_standby_replicas_recover_quickly_and_cost_a_whole_table_per_process() -> None:
    load = Workload(1_000_000, 100_000_000, partitions=64)
    without, with_ = (estimate(replace(load, standby=standby), MEASURED) for standby in (False, True))
    assert with_.process_gb == pytest.approx(with_.table_gb)
    assert without.process_gb < with_.process_gb
    assert with_.brokers_out_mb_s > without.brokers_out_mb_s
    assert {limit.name: limit.used for limit in with_.limits}["recovery"] < 1


def test_without_views_there_are_no_limits_of_views() -> None:
    names = {limit.name for limit in estimate(Workload(1e7, 10**9, views=0), MEASURED).limits}
    assert "a copy of the table" not in names
    assert estimate(Workload(1e7, 10**9, partitions=480), MEASURED).limits[0].name == "a copy of the table"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("records_s", 0.0),
        ("records_s", math.nan),
        ("records_s", math.inf),
        ("keys", 0),
        ("partitions", 0),
        ("replicas", -1),
        ("value_bytes", -1),
        ("views", -1),
        ("commit_s", 0.0),
        ("active_keys", 0),
        ("active_keys", 101),
    ],
)
def test_an_impossible_load_is_rejected_by_name(name: str, value: float) -> None:
    option = {"records_s": "records", "commit_s": "commit-ms"}.get(name, name.replace("_", "-"))
    with pytest.raises(Refused, match=f"--{option} "):
        replace(Workload(1.0, 100), **{name: value})  # type: ignore[arg-type]  # each is of its name's type

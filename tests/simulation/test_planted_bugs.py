"""The simulation finds what it is there to find: bugs that are planted in the engine, each against one of its rules."""

from collections.abc import Mapping
from itertools import count

import pytest
from prometheus_client import CollectorRegistry
from tests.simulation import bugs
from tests.simulation.run import Totals, first_broken, run_seed

from streamtable.observe import Metrics

SECONDS_MAX = 90.0
# Where the search begins, so that it is short. If the engine or the simulation changes, another seed may be the first.
BEGIN_AT: Mapping[bugs.Plant, int] = {
    bugs.store_written_before_the_commit: 3,
    bugs.recovery_to_the_last_stable_offset: 106,
    bugs.no_recovery_after_an_unknown_outcome: 57,
    bugs.records_told_again_are_handled_again: 9,
    bugs.producer_used_on_after_an_unknown_outcome: 16,
    bugs.offsets_sent_with_the_first_membership: 2,
    bugs.offsets_sent_without_a_membership: 75,
    bugs.rows_in_memory_kept_at_a_rewind: 1,
    bugs.offsets_committed_without_the_position: 1,
    bugs.first_offsets_of_a_new_partition_not_committed: 24,
    bugs.commit_in_lost: 4,
    bugs.input_not_read_again_after_a_rewind: 2,
    bugs.abort_without_an_answer_taken_for_done: 37,
    bugs.aborted_records_restored: 6,
    bugs.position_said_one_too_low: 1,
    bugs.outputs_sent_before_the_transaction: 3,
    bugs.revocation_without_a_release: 1,
    bugs.joined_copy_written_before_the_commit: 16,
    bugs.joined_copy_kept_at_a_rewind: 205,
    bugs.changes_loaded_beyond_the_committed_offset: 9,
    bugs.changes_of_a_refused_record_not_taken_over: 9,
    bugs.joined_offset_committed_without_its_rows: 9,
    bugs.loops_sent_again_after_a_rewind: 9,
    bugs.visit_carried_on_outside_the_transaction: 16,
    bugs.ids_not_written_to_the_changelog: 1,
    bugs.ids_kept_after_a_rewind: 1,
    bugs.ids_expired_early: 1,
    bugs.old_values_taken_from_the_joined_copy: 1,
    bugs.outputs_of_an_undone_record_stay: 1,
    bugs.rows_of_an_undone_record_stay: 1,
    bugs.condemned_records_forgotten_at_a_rewind: 1,
}


@pytest.mark.parametrize("plant", BEGIN_AT, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: bugs.Plant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = first_broken(count(BEGIN_AT[plant]), SECONDS_MAX, Totals())
    assert found, "it was not found"
    assert run_seed(found.seed, Metrics.register(CollectorRegistry())).broken is None

import pytest
from bench import __main__ as bench
from bench.compare import Held

LOST = Held(["count is 0.350 of its baseline, 30% less than 0.500"], [], 3)


def test_a_loss_fails_the_run_unless_it_is_only_to_be_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.tell(LOST, warn=False) == 1
    assert "WARNING" not in capsys.readouterr().out
    assert bench.tell(LOST, warn=True) == 0
    said = capsys.readouterr().out
    assert "WARNING" in said
    assert "30% less" in said


def test_a_gain_is_reported_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.tell(Held([], ["count"], 1), warn=False) == 0
    assert "count: much better" in capsys.readouterr().out

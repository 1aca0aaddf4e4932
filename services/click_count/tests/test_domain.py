from click_count.domain import add_click


def test_a_click_adds_one() -> None:
    assert add_click(None) == 1
    assert add_click(41) == 42

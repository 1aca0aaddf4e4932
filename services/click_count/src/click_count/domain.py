"""What click counting means, without any input or output."""


def add_click(count: int | None) -> int:
    """The count after one more click; None: there was none yet."""
    return (count or 0) + 1

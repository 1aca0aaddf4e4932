"""The domain logic of click counting, without any input or output."""


def add_click(count: int | None) -> int:
    """Return the count after one more click; `count` None: there was none yet."""
    return (count or 0) + 1

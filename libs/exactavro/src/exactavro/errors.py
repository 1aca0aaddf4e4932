"""The three errors, named after their cause: the bytes, the value, or the schema.

Their messages begin with the place in the record, such as ".user.name: not UTF-8", and never quote the data.
"""


class Malformed(ValueError):
    """The bytes do not match the writer's schema."""


class Unfit(ValueError):
    """The value does not fit the schema."""


class Unusable(ValueError):
    """The schema is invalid or unsafe to read with, or nothing written with it can be read with the reader's schema."""


def placed(place: str, text: str) -> str:
    """Prefix a message with a place. The message may already begin with the inner part: ".field: ..." or "[0]: ..."."""
    return place + text if text.startswith((".", "[")) else f"{place}: {text}"

"""A range of whole days, in UTC, as given in arguments."""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from streamtable_spark.errors import ConfigurationError

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True)
class DateRange:
    """The days from `start` up to, but not including, `end`.

    Attributes:
        start: The first day.
        end: The day after the last one.
    """

    start: date
    end: date

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ConfigurationError(
                f"--from {self.start} --to {self.end}: the end is the day after the last one, so it must be later "
                f"than the start; for that one day: --to {self.start + timedelta(1)}"
            )

    @property
    def condition(self) -> str:
        """The SQL condition for a column `day`."""
        return f"day >= DATE'{self.start}' AND day < DATE'{self.end}'"


def day(text: str, argument: str) -> date:
    """Parse a date from an argument.

    Args:
        text: YYYY-MM-DD.
        argument: The name of the argument, for the message.

    Raises:
        ConfigurationError: The text is not a date.
    """
    try:
        if not _DAY.fullmatch(text):
            raise ValueError("it has another form")
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{argument} {text!r}: a day such as 2026-07-31 is needed, in UTC ({error})"
        ) from error

"""What a service is told beyond the settings of the library and of the edge: variables that begin with its own name."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Self

from contracts.event_time import MAX_AHEAD_SECONDS
from servicekit.http.cursors import SECRET_BYTES_MIN
from streamtable.errors import ConfigurationError

_WAIT_SECONDS_MAX: Final = 8.0  # a request is answered within 10
_AHEAD_SECONDS_MAX: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Settings of a service. Each attribute is read from the variable `PREFIX` and its name in capitals.

    Attributes:
        group: name of the group whose table is kept or read; a second version has one of its own.
        cursor_secret: signs cursors; the same in all replicas of the query service. None: a random one, so that
            cursors are good for this process only.
        docs: serve the interactive pages `/docs`; true or false.
        reflection: gRPC tells its services to whoever asks; true or false.
        wait_seconds: how long a question waits for the write that its token names.
        max_ahead_seconds: how far an event's time may be ahead: of the clock where a request brings it, of its record's
            timestamp where a processor handles it.
    """

    PREFIX: ClassVar[str]

    group: str
    cursor_secret: str | None = field(default=None, repr=False)
    docs: bool = False
    reflection: bool = False
    wait_seconds: float = 5.0
    max_ahead_seconds: float = MAX_AHEAD_SECONDS

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings.

        Raises:
            ConfigurationError: lists what is wrong; never a secret's value.
        """
        given = {
            name.removeprefix(cls.PREFIX): text
            for name, text in environ.items()
            if name.startswith(cls.PREFIX)
        }
        kinds = {each.name.upper(): each for each in fields(cls)}
        problems = [f"{cls.PREFIX}{name}: there is no such setting" for name in given.keys() - kinds.keys()]
        values: dict[str, Any] = {}
        for name in given.keys() & kinds.keys():
            try:
                reader = _READERS_BY_NAME.get(name.lower()) or _READERS[kinds[name].type]
                values[name.lower()] = reader(given[name])
            except ValueError as error:
                shown = "" if kinds[name].type == _SECRET else f"={given[name]!r}"
                problems.append(f"{cls.PREFIX}{name}{shown}: expected {error}")
        if problems:
            raise ConfigurationError(
                "\n".join(["settings are wrong; nothing was started:", *sorted(problems)])
            )
        return cls(**values)


def _secret(text: str) -> str:
    if len(text.encode()) < SECRET_BYTES_MIN:
        raise ValueError(f"at least {SECRET_BYTES_MIN} bytes")
    return text


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("true or false")
    return text == "true"


def _seconds(text: str, most: float = _WAIT_SECONDS_MAX) -> float:
    wanted = f"seconds, from 0 to {most:g}"
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(wanted) from None
    if not (math.isfinite(seconds) and 0 <= seconds <= most):
        raise ValueError(wanted)
    return seconds


_SECRET: Final = str | None
_READERS: Final[Mapping[Any, Callable[[str], Any]]] = {
    str: str,
    _SECRET: _secret,
    bool: _boolean,
    float: _seconds,
}
_READERS_BY_NAME: Final[Mapping[str, Callable[[str], Any]]] = {
    "max_ahead_seconds": lambda text: _seconds(text, _AHEAD_SECONDS_MAX)
}

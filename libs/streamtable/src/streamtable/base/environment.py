"""The base of all settings: frozen, validated when built, and read from environment variables by one function, once.

An error names the variable, its value (unless it is a secret) and the valid values; all errors are reported at once.
"""

import difflib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, ValidationError

from streamtable.errors import ConfigurationError

_DECIMAL: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_SHOWN_CHARACTERS_MAX: Final = 80


class EnvironmentSettings(BaseModel):
    """Settings of a process. A subclass sets `env_prefix`; a field's variable is the prefix and its name in capitals.

    A variable that begins with the prefix and names no field is rejected, since it is probably misspelt: `env_others` are
    further names to suggest. A field that is declared with `repr=False` is a secret. The constructor itself reads no
    environment.
    """

    model_config = ConfigDict(
        arbitrary_types_allowed=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        validate_default=True,
    )
    env_prefix: ClassVar[str] = ""
    env_ignore_empty: ClassVar[bool] = False
    env_others: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **defaults: Any) -> Self:
        """Read the settings.

        Args:
            environ: The variables; default: those of this process.
            defaults: The values of fields for which there is no variable.

        Raises:
            ConfigurationError: A variable is unknown or invalid; the message lists all errors.
        """
        return cls._read(os.environ if environ is None else environ, defaults, [])

    @classmethod
    def _read(cls, environ: Mapping[str, str], defaults: Mapping[str, Any], problems: list[str]) -> Self:
        variables = cls.variables()
        given = {name: environ[name] for name in variables if name in environ}
        if cls.env_prefix:
            unknown = {name for name in environ if name.upper().startswith(cls.env_prefix)} - variables.keys()
            problems += [
                f"{name}: there is no such setting{_suggestion(name, [*variables, *cls.env_others])}"
                for name in unknown
            ]
        if cls.env_ignore_empty:
            given = {name: text for name, text in given.items() if text}
        for name, text in list(given.items()):
            if text != text.strip() or not text or not text.isprintable():
                shown = _shown(given.pop(name), secret=cls._is_secret(variables[name]))
                problems.append(f"{name}{shown}: expected text without surrounding spaces, and not empty")
        # Of several variables of a field the first counts.
        values = {variables[name]: text for name, text in reversed(given.items())}
        try:
            settings = cls(**{**defaults, **values})
        except ValidationError as error:
            problems += [cls._problem(details, given, variables) for details in error.errors()]
        if problems:
            text = "\n".join(["settings are wrong; nothing was started:", *sorted(problems)])
            raise ConfigurationError(text)
        return settings

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return variable -> field. If a field has several variables, the first that is set counts."""
        found = {}
        for name, field in cls.model_fields.items():
            alias = field.validation_alias
            aliases = (
                alias.choices
                if isinstance(alias, AliasChoices)
                else [alias or f"{cls.env_prefix}{name.upper()}"]
            )
            found.update(dict.fromkeys(map(str, aliases), name))
        return found

    @classmethod
    def _is_secret(cls, field: str) -> bool:
        return not cls.model_fields[field].repr

    @classmethod
    def _problem(cls, details: Any, given: Mapping[str, str], variables: Mapping[str, str]) -> str:
        expected = str(details.get("ctx", {}).get("error", details["msg"]))
        if not details["loc"] or str(details["loc"][0]) not in variables.values():
            return expected  # an error about several variables; it names them
        place = str(details["loc"][0])
        field = variables.get(place, place)
        names = [name for name, found in variables.items() if found == field]
        name = next((name for name in names if name in given), names[0])
        shown = _shown(given[name], secret=cls._is_secret(field)) if name in given else " (its default)"
        return f"{name}{shown}: expected {expected}"


def seconds(low: float, high: float) -> BeforeValidator:
    """Return a validator for seconds within these limits, for a field of type float."""
    return number(low, high, f"seconds, a plain decimal number from {low:.12g} to {high:.12g}")


def number(low: float, high: float, expected: str) -> BeforeValidator:
    """Return a validator for plain decimal numbers within these limits, which are described as `expected`."""

    def check(value: object) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(expected)
        return float(value)

    return BeforeValidator(check)


def one_of(*choices: str) -> BeforeValidator:
    """Return a validator for one of several words."""

    def check(value: object) -> object:
        if value not in choices:
            raise ValueError(" or ".join(choices))
        return value

    return BeforeValidator(check)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in {"true", "false"}:
        raise ValueError("true or false")
    return value == "true"


Flag = Annotated[bool, BeforeValidator(_flag)]
"""`true` or `false`, where pydantic would also accept `yes`, `1` and `on`."""


def secret_in(path: str) -> str:
    """Return the secret in a file, its only line without the newline.

    Raises:
        ValueError: The file cannot be read, or does not have one line. The message does not show what it has.
    """
    try:
        secret = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{path} cannot be read: {reason}") from None
    if not secret or not secret.isprintable() or secret != secret.strip():
        raise ValueError(f"{path}: expected one line with the secret, without surrounding spaces")
    return secret


def _suggestion(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _shown(text: str, *, secret: bool) -> str:
    if secret or "@" in text:  # the form of a URL with a password
        return ""
    return f"={text[:_SHOWN_CHARACTERS_MAX]!r}" + "..." * (len(text) > _SHOWN_CHARACTERS_MAX)

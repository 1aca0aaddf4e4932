"""The base of all settings: frozen, checked when built, and read from environment variables by one function, once.

An error names the variable, its value (unless it is a secret) and the valid values; all errors are reported at once.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Final, Self, dataclass_transform, get_args, get_type_hints

from streamtable.errors import ConfigurationError

_DECIMAL: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_SHOWN_CHARACTERS_MAX: Final = 80

Check = Callable[[object], Any]
"""Returns the value of a setting for a text or a value; raises `ValueError` with the expectation. It stands in the annotation."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")  # noqa: TRY004 - as all checks
    return value


class _Wrong(ConfigurationError):
    """Settings are wrong. `expected` says by field what was expected; "" stands for several fields together."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        problems = (f"{name}: expected {text}" if name else text for name, text in expected.items())
        super().__init__(f"settings are wrong: {'; '.join(problems)}")
        self.expected = expected


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class EnvironmentSettings:
    """Settings of a process. A subclass sets `env_prefix`; a field's variable is the prefix and its name in capitals.

    Each subclass is a frozen dataclass. A field is a `str`, or has its check in the annotation:
    `wait: Annotated[float, seconds(0, 8)] = 5.0`; either may be None. `field(repr=False)` declares a secret, and
    `field(metadata={"variables": (...)})` gives a field variables of other names: the first that is set counts. A subclass
    whose fields may contradict each other overrides `_check_together`.

    A variable that begins with the prefix and names no field is rejected, since it is probably misspelt: `env_others` are
    further names to suggest. The constructor itself reads no environment.

    Raises:
        ConfigurationError: Values are invalid; the message lists all errors.
    """

    env_prefix: ClassVar[str] = ""
    env_ignore_empty: ClassVar[bool] = False
    env_others: ClassVar[tuple[str, ...]] = ()
    declared: ClassVar[Mapping[str, Field[Any]]] = {}
    checks: ClassVar[Mapping[str, Check]] = {}

    def __init_subclass__(cls) -> None:
        kinds = get_type_hints(cls, include_extras=True)
        made: Any = dataclass(frozen=True, kw_only=True)(cls)
        cls.declared = {each.name: each for each in fields(made)}
        cls.checks = {name: _check_in(kinds[name]) for name in cls.declared}

    def __post_init__(self) -> None:
        wrong = {}
        for name, check in self.checks.items():
            try:
                object.__setattr__(self, name, check(getattr(self, name)))
            except ValueError as error:
                wrong[name] = str(error)
        if not wrong:
            try:
                self._check_together()
            except ValueError as error:
                wrong[""] = str(error)
        if wrong:
            raise _Wrong(wrong)

    def _check_together(self) -> None:
        """Raise `ValueError` if fields contradict each other; a subclass knows which may."""

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
                shown = _shown(given.pop(name), secret=not cls.declared[variables[name]].repr)
                problems.append(f"{name}{shown}: expected text without surrounding spaces, and not empty")
        # Of several variables of a field the first counts.
        values = {variables[name]: text for name, text in reversed(given.items())}
        # A field without a default has two that are missing; None is refused as its value is.
        required = {name: None for name, each in cls.declared.items() if each.default is each.default_factory}
        try:
            settings = cls(**{**required, **defaults, **values})
        except _Wrong as error:
            problems += [cls._problem(name, text, given) for name, text in error.expected.items()]
        if problems:
            text = "\n".join(["settings are wrong; nothing was started:", *sorted(problems)])
            raise ConfigurationError(text)
        return settings

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return variable -> field. If a field has several variables, the first that is set counts."""
        found = {}
        for name, each in cls.declared.items():
            names = each.metadata.get("variables", (f"{cls.env_prefix}{name.upper()}",))
            found.update(dict.fromkeys(names, name))
        return found

    @classmethod
    def _problem(cls, name: str, expected: str, given: Mapping[str, str]) -> str:
        names = [variable for variable, found in cls.variables().items() if found == name]
        if not names:
            return expected  # an error about several variables; it names them
        variable = next((each for each in names if each in given), names[0])
        required = cls.declared[name].default is cls.declared[name].default_factory
        shown = "" if required else " (its default)"
        if variable in given:
            shown = _shown(given[variable], secret=not cls.declared[name].repr)
        return f"{variable}{shown}: expected {expected}"


def seconds(low: float, high: float) -> Check:
    """Return the check of seconds within these limits, for a field of type float."""
    return number(low, high, f"seconds, a plain decimal number from {low:.12g} to {high:.12g}")


def number(low: float, high: float, expected: str) -> Check:
    """Return the check of plain decimal numbers within these limits, which are described as `expected`."""

    def check(value: object) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(expected)
        return float(value)

    return check


def one_of(*choices: str) -> Check:
    """Return the check of one of several words."""

    def check(value: object) -> object:
        if value not in choices:
            raise ValueError(" or ".join(choices))
        return value

    return check


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in {"true", "false"}:
        raise ValueError("true or false")
    return value == "true"


Flag = Annotated[bool, _flag]
"""`true` or `false`; not `yes`, `1` or `on`."""


def _check_in(kind: Any) -> Check:
    """Return the check in an annotation: of a text, of `Annotated[..., check]`, or of one of these or None."""
    if kind is str:
        return _text
    if checks := getattr(kind, "__metadata__", ()):
        check: Check = checks[0]
        return check
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if len(kinds) != 1 or NoneType not in get_args(kind):
        raise TypeError(f"{kind} has no check: annotate it with one, as in Annotated[float, seconds(0, 60)]")
    inner = _check_in(kinds[0])
    return lambda value: None if value is None else inner(value)


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

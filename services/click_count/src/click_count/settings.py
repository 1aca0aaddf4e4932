"""What these services are told beyond the library's own settings: variables that begin with CLICK_COUNT_."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from servicekit.pages import SECRET_BYTES_MIN
from streamtable.errors import ConfigurationError

PREFIX: Final = "CLICK_COUNT_"


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of click counting.

    Attributes:
        group: CLICK_COUNT_GROUP: name of the group whose table is kept or read; a second version has one of its own.
        cursor_secret: CLICK_COUNT_CURSOR_SECRET: signs cursors; the same in all replicas of the query service. None:
            a random one, so that cursors are good for this process only.
        docs: CLICK_COUNT_DOCS: serve the interactive pages `/docs`; true or false.
        reflection: CLICK_COUNT_REFLECTION: gRPC tells its services to whoever asks; true or false.
    """

    group: str = "click-count"
    cursor_secret: str | None = None
    docs: bool = False
    reflection: bool = False

    def __repr__(self) -> str:
        return f"ServiceSettings(group={self.group!r}, docs={self.docs}, reflection={self.reflection})"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "ServiceSettings":
        """Read the settings.

        Raises:
            ConfigurationError: lists what is wrong; never a secret's value.
        """
        given = {name.removeprefix(PREFIX): text for name, text in environ.items() if name.startswith(PREFIX)}
        problems = [
            f"{PREFIX}{name}: there is no such setting"
            for name in given.keys() - {"GROUP", "CURSOR_SECRET", "DOCS", "REFLECTION"}
        ]
        problems += [
            f"{PREFIX}{name}={given[name]!r}: expected true or false"
            for name in ("DOCS", "REFLECTION")
            if given.get(name, "false") not in {"true", "false"}
        ]
        secret = given.get("CURSOR_SECRET")
        if secret is not None and len(secret.encode()) < SECRET_BYTES_MIN:
            problems.append(f"{PREFIX}CURSOR_SECRET: expected at least {SECRET_BYTES_MIN} bytes")
        if problems:
            raise ConfigurationError(
                "\n".join(["settings are wrong; nothing was started:", *sorted(problems)])
            )
        return cls(
            group=given.get("GROUP", cls.group),
            cursor_secret=secret,
            docs=given.get("DOCS") == "true",
            reflection=given.get("REFLECTION") == "true",
        )

"""What a command adds to the library's errors."""

from streamtable.errors import ConfigurationError, StreamtableError


class NotFound(StreamtableError):
    """What was asked for is not there. Exit code 1."""


class Refused(ConfigurationError):
    """It would lose or double something, or more has to be said first. Exit code 2; nothing was changed."""

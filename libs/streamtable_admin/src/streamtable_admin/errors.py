"""Errors that administration adds to the library's."""

from streamtable.errors import ConfigurationError, StreamtableError


class NotFound(StreamtableError):
    """A topic, partition, group or record does not exist."""


class NoSuchTopic(NotFound):
    """A topic does not exist, or it has no such partition."""


class NoSuchDeadLetter(NotFound):
    """A dead letter does not exist, or its topic has deleted it."""


class Refused(ConfigurationError):
    """An operation was refused because it would lose or duplicate data, or its request is incomplete. Nothing was changed."""

"""Errors, named after the action of the caller."""


class LocalKafkaError(Exception):
    """Base of all errors of this package."""


class SetupError(LocalKafkaError):
    """A port, Java or the jars are not available: choose another port, or install what the message names."""


class BrokerFailed(LocalKafkaError):
    """The broker has ended or does not work: read its log."""


class BrokerNotReady(LocalKafkaError):
    """The broker takes longer than expected: retry."""

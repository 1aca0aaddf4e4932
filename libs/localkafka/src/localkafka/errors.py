"""Errors, named after the action of the caller."""


class LocalKafkaError(Exception):
    """Base of all errors of this package."""


class SetupError(LocalKafkaError):
    """Something that was asked for cannot be had: a port, Java, the jars. Ask for another, or install it."""


class BrokerFailed(LocalKafkaError):
    """The broker has ended, or does not do what brokers do: look at its log."""


class BrokerNotReady(LocalKafkaError):
    """The broker takes longer than usual: ask again."""

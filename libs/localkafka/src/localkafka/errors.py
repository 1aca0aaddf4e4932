"""Errors, named after what the caller must do."""


class LocalKafkaError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(LocalKafkaError):
    """Something that was asked for cannot be had: a port, Java, the jars. Ask for another, or install it."""


class Fatal(LocalKafkaError):
    """The broker has ended, or does not do what brokers do: look at its log."""


class RetryLater(LocalKafkaError):
    """The broker takes longer than usual: ask again."""

"""Every error of the jobs, named after the action that it asks for.

    SparkJobError
    ├── ConfigurationError   correct the arguments, or install missing packages; nothing was started
    ├── InputLost            records were deleted before they were read: a person must decide how to continue
    ├── OtherLake            the folder belongs to another job, topic or cluster: name another folder
    ├── RetryLater           Kafka does not answer, or not yet: run the job again
    └── Fenced               another run of the same job has begun: leave it to that

A job ends with the message as its last line and a status of its own, never with a stack trace.
"""

from typing import ClassVar


class SparkJobError(Exception):
    """Base of all errors of the jobs."""

    status: ClassVar[int] = 1


class ConfigurationError(SparkJobError):
    """An argument is wrong, or something that a job needs is missing. Nothing was started."""

    status = 2


class InputLost(SparkJobError):
    """Input that was not read yet is gone: continuing would lose records silently."""

    status = 3


class OtherLake(SparkJobError):
    """The folder holds data from other inputs, or is damaged: writing there would mix different data."""

    status = 4


class RetryLater(SparkJobError):
    """Kafka does not answer, or has no answer yet. A job that is run again resumes where it stopped."""

    status = 5


class Fenced(SparkJobError):
    """Another run of the same job has begun since, and replaces this one."""

    status = 6

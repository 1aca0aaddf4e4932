"""The command line of a service: one command for each role, which runs until it is stopped, and a load generator."""

import sys
from collections.abc import Callable
from typing import Generic, TypeVar

import typer

from servicekit.process import options
from servicekit.process.load import LoadOptions
from servicekit.process.options import FailFast
from servicekit.process.runtime import Program, Runtime
from servicekit.process.service_settings import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)


class CommandLine(Generic[S]):
    """The commands of a service, listed by `--help` in the order in which they were added.

    Args:
        program: Runs the commands.
        text: The description of the service for `--help`.

    Attributes:
        app: The Typer application; calling it runs the command that the process was started with. Commands with options of their own are
            added to it, with the program's `environment` as their epilog.
    """

    def __init__(self, program: Program[S], text: str) -> None:
        self.app = typer.Typer(
            help=text,
            epilog=program.environment,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
        )
        self._program = program
        self._environment = program.environment

    def add(self, name: str, text: str, work: Callable[[Runtime[S]], int]) -> None:
        """Add a command whose only option is `--fail-fast`."""

        @self.app.command(name, help=text, epilog=self._environment)
        def serve(*, fail_fast: FailFast = False) -> None:
            sys.exit(self._program.run(work, fail_fast=fail_fast))

    def add_load(
        self, text: str, work: Callable[[Runtime[S], LoadOptions], int], *, skew: float = 0.0
    ) -> None:
        """Add the command `load`; `skew` is the default of its option."""

        @self.app.command("load", help=text, epilog=self._environment)
        def load(
            rate: options.Rate = 1000.0,
            keys: options.Keys = 1000,
            skew: options.Skew = skew,
            count: options.Count = None,
            seconds: options.Seconds = None,
            seed: options.Seed = 1,
            *,
            fail_fast: FailFast = False,
        ) -> None:
            given = LoadOptions(rate=rate, keys=keys, skew=skew, count=count, seconds=seconds, seed=seed)
            sys.exit(self._program.run(lambda runtime: work(runtime, given), fail_fast=fail_fast))

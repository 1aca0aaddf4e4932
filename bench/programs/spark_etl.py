"""The ETL, as its users start it, with the time of each of its steps."""

import sys

from bench.programs.spark_steps import Steps

from streamtable_spark.jobs.etl import work
from streamtable_spark.jobs.job_args import ended

if __name__ == "__main__":
    steps = Steps()
    sys.exit(ended(lambda arguments: work(arguments, steps.reached), sys.argv[1:]))

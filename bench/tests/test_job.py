from bench.job import Job


def test_a_job_travels_through_the_environment() -> None:
    job = Job("127.0.0.1:1", "t", "g", 5, "/s", commit_ms=7, rate=3, seconds=1.5, clients=2)
    assert Job.from_environment(job.environment()) == job


def test_its_variables_have_the_names_that_programs_in_other_languages_read() -> None:
    assert Job("b", commit_ms=7).environment() | {"BENCH_BROKER": "b", "BENCH_COMMIT_MS": "7"} == (
        Job("b", commit_ms=7).environment()
    )

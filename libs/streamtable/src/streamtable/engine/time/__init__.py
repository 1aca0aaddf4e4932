"""Event time in a task: streams, watermarks, idle inputs."""

"""Tables on this machine: replicas of changelog partitions, and the rows that a task works on."""

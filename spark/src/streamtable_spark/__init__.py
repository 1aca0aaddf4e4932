"""PySpark jobs over the topics: `jobs` holds the programs to submit, `transforms` maps data frames to data frames."""

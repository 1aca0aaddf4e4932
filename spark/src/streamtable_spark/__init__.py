"""PySpark jobs over the topics: `jobs` are what is submitted, `transforms` map data frames to data frames."""

"""The joins: steps and the records that they keep."""

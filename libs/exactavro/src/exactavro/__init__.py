"""Avro's binary encoding, exactly: readers and writers made once from schemas, for many values.

Write with `make_writer` and `encode`, read with `make_reader` and `decode`. Where a call for each value costs too
much, call the reader and the writer themselves; `Reader` and `Writer` say what the caller then has to do.
"""

from exactavro.errors import Malformed, Unfit, Unusable, placed
from exactavro.reading import READ_ERRORS, Reader, decode
from exactavro.resolving import make_reader
from exactavro.schema import Schema
from exactavro.writing import WRITE_ERRORS, Writer, encode, make_writer, unfit

__all__ = [
    "READ_ERRORS",
    "WRITE_ERRORS",
    "Malformed",
    "Reader",
    "Schema",
    "Unfit",
    "Unusable",
    "Writer",
    "decode",
    "encode",
    "make_reader",
    "make_writer",
    "placed",
    "unfit",
]

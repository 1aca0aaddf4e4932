"""Strict Avro binary encoding: readers and writers are made once from schemas and used for many values.

Write with `make_writer` and `encode`, read with `make_reader` and `decode`. To save a call per value, call the reader
and the writer directly; `Reader` and `Writer` say which checks are then up to the caller.
"""

from exactavro.branches import avro_branch, avro_branch_of
from exactavro.errors import Malformed, Unfit, Unusable, placed
from exactavro.reading import READ_ERRORS, Reader, decode
from exactavro.resolving import make_reader
from exactavro.schema import Schema, kind
from exactavro.shape import alone, can_be_null, has_one_encoding, parts, unions
from exactavro.writing import WRITE_ERRORS, Writer, encode, make_writer, may_lose, unfit

__all__ = [
    "READ_ERRORS",
    "WRITE_ERRORS",
    "Malformed",
    "Reader",
    "Schema",
    "Unfit",
    "Unusable",
    "Writer",
    "alone",
    "avro_branch",
    "avro_branch_of",
    "can_be_null",
    "decode",
    "encode",
    "has_one_encoding",
    "kind",
    "make_reader",
    "make_writer",
    "may_lose",
    "parts",
    "placed",
    "unfit",
    "unions",
]

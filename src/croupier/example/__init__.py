"""tf.train.Example without TensorFlow: one record at a time, or many as columns."""

from croupier.example.batch import decode_batch
from croupier.example.columns import Column, Columns, Kind
from croupier.example.decode import BytesList, SequenceExample, decode, decode_sequence
from croupier.example.encode import encode, encode_sequence
from croupier.example.encode_batch import encode_batch
from croupier.example.schema import Feature, Schema

__all__ = [
    "BytesList",
    "Column",
    "Columns",
    "Feature",
    "Kind",
    "Schema",
    "SequenceExample",
    "decode",
    "decode_batch",
    "decode_sequence",
    "encode",
    "encode_batch",
    "encode_sequence",
]

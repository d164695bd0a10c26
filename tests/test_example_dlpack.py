"""Columns of Examples in PyTorch and JAX, by DLPack: the same memory, for as long as anybody has it."""

import gc
import weakref

import numpy as np
import pytest

from croupier import Feature, Schema
from croupier.example import Kind, decode_batch, encode

# In one worker, so that others need not import them.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("dlpack")]

RECORDS = 2000


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


@pytest.fixture
def jax():
    """With 64-bit numbers, which JAX has to be asked for."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


def columns(records=RECORDS):
    """An int64, three floats, a list of numbers, and a picture of four uint8s in each record."""
    rng = np.random.default_rng(5)
    schema = Schema(
        {
            "label": Feature("label", Kind.INT64, shape=()),
            "box": Feature("box", Kind.FLOAT, shape=(3,)),
            "ids": Feature("ids", Kind.INT64),
            "image": Feature("image", Kind.BYTES, dtype="uint8", shape=(2, 2)),
        }
    )
    return decode_batch(
        [
            encode(
                {
                    "label": number - (1 << 40),
                    "box": rng.random(3),
                    "ids": rng.integers(0, 50_000, number % 5),
                    "image": rng.bytes(4),
                }
            )
            for number in range(records)
        ],
        schema,
    )


SHARED = {"label": np.int64, "box": np.float32, "image": np.uint8}


@pytest.mark.parametrize("name", SHARED)
def test_torch_shares_a_column(torch, name):
    column = columns()[name]
    for tensor in (torch.from_dlpack(column), torch.utils.dlpack.from_dlpack(column)):
        assert tensor.data_ptr() == column.values.ctypes.data
        assert tensor.numpy().dtype == SHARED[name]
        assert np.array_equal(tensor.numpy(), column.array)
    tensor[7] = 5
    assert (column.array[7] == 5).all()


def test_torch_shares_lists(torch):
    column = columns()["ids"]
    values, rows = torch.from_dlpack(column.values), torch.from_dlpack(column.rows)
    assert (values.data_ptr(), rows.data_ptr()) == (column.values.ctypes.data, column.rows.ctypes.data)
    nested = torch.nested.nested_tensor_from_jagged(values, rows)
    for number, tensor in enumerate(nested.unbind()):
        assert tensor.tolist() == column[number].tolist()


@pytest.mark.parametrize("name", SHARED)
def test_jax_shares_a_column(jax, name):
    column = columns()[name]
    array = jax.dlpack.from_dlpack(column)
    assert array.unsafe_buffer_pointer() == column.values.ctypes.data
    assert array.dtype == SHARED[name]
    assert np.array_equal(np.asarray(array), column.array)


def test_jax_shares_lists(jax):
    column = columns()["ids"]
    array = jax.dlpack.from_dlpack(column.values)
    assert array.unsafe_buffer_pointer() == column.values.ctypes.data
    assert np.array_equal(np.asarray(array), column.values)


@pytest.mark.parametrize("records", [1, 7])
def test_few_values(torch, jax, records):
    """Which may be copied."""
    few = columns(records)
    for name in SHARED:
        assert np.array_equal(torch.from_dlpack(few[name]).numpy(), few[name].array)
        assert np.array_equal(np.asarray(jax.dlpack.from_dlpack(few[name])), few[name].array)


@pytest.mark.parametrize("name", SHARED)
def test_memory_lives_as_long_as_the_last_who_has_it(torch, jax, name):
    for load in (torch.from_dlpack, jax.dlpack.from_dlpack):
        found = columns()
        wanted = found[name].array.copy()
        memory = weakref.ref(found[name].values.base)
        taken = load(found[name])
        del found
        gc.collect()
        assert memory() is not None
        assert np.array_equal(np.asarray(taken), wanted)
        del taken
        gc.collect()
        assert memory() is None


def test_strings_are_refused(torch):
    column = decode_batch([encode({"text": "a"}), encode({"text": "b"})])["text"]
    with pytest.raises(BufferError):
        torch.from_dlpack(column)

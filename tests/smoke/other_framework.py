"""A framework whose arrays are no tensors of torch's, with DLPack's C exchange API in ctypes.

Its arrays lie in torch's memory; it forwards to torch's own table and wraps what comes back.
"""

import ctypes as c

import torch

_object_type = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)


class _Table(c.Structure):
    """DLPackExchangeAPI of dlpack.h."""

    _fields_ = (
        *(("major", c.c_uint32), ("minor", c.c_uint32), ("previous", c.c_void_p)),
        ("allocate", c.c_void_p),
        ("managed_from_object", c.c_void_p),
        ("to_object", c.c_void_p),
        ("from_object", c.c_void_p),
        ("stream", c.c_void_p),
    )


class Array:
    """An array of this framework; `tensor` is its memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def install() -> None:
    """Give the arrays their table, once: modules keep its address. torch must have one."""
    if hasattr(Array, "keep"):
        return
    c.pythonapi.PyCapsule_GetPointer.restype = c.c_void_p
    c.pythonapi.PyCapsule_GetPointer.argtypes = (c.py_object, c.c_char_p)
    c.pythonapi.PyCapsule_New.restype = c.py_object
    c.pythonapi.PyCapsule_New.argtypes = (c.c_void_p, c.c_char_p, c.c_void_p)
    name = b"dlpack_exchange_api"
    capsule = torch.Tensor.__dlpack_c_exchange_api__
    theirs = _Table.from_address(c.pythonapi.PyCapsule_GetPointer(capsule, name))

    @_object_type
    def from_object(array: int, out: int) -> int:
        tensor = c.cast(array, c.py_object).value.tensor
        return _object_type(theirs.from_object)(id(tensor), out)

    @_object_type
    def to_object(managed: int, out: int) -> int:
        made = c.c_void_p()
        failed = _object_type(theirs.to_object)(managed, c.addressof(made))
        if not failed:
            tensor = c.cast(made, c.py_object).value
            c.pythonapi.Py_DecRef(c.py_object(tensor))
            array = Array(tensor)
            c.pythonapi.Py_IncRef(c.py_object(array))
            c.c_void_p.from_address(out).value = id(array)
        return failed

    table = _Table(
        theirs.major, theirs.minor, None, theirs.allocate, None, None, None, theirs.stream
    )
    table.to_object, table.from_object = (
        c.cast(function, c.c_void_p) for function in (to_object, from_object)
    )
    Array.keep = (table, to_object, from_object)
    Array.__dlpack_c_exchange_api__ = c.pythonapi.PyCapsule_New(c.addressof(table), name, None)

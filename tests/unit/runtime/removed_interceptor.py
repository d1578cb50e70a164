"""Removes an interceptor where a thread waits for the GIL; prints what its call finds.

If the interceptor's kernel is freed, this process crashes.
"""

import ctypes
import sys
import threading
import time

import torch
from torch.library import Library

from torchwheel_runtime.runtime.first_call import FirstCall

LIBC = ctypes.PyDLL(None)  # its functions run with the GIL
LIBC.malloc.restype = ctypes.c_void_p
LIBC.memset.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t

# It computes without the GIL before it calls, so the thread that waits for the GIL takes it.
SCRIPT = """
def call(x):
    y = torch.ones([100000])
    for i in range(100):
        y = y.cos()
    return torch.ops.interceptor.double(x)
"""


def overwrite_freed_memory() -> None:
    for size in range(16, 128, 8):
        for _ in range(50):
            LIBC.memset(LIBC.malloc(size), 0x41, size)


def hold_until_it_waits(thread: threading.Thread) -> None:
    """Keep the GIL until a thread computes nothing any more."""
    clock = time.pthread_getcpuclockid(thread.ident)
    before = -1.0
    while before != (before := time.clock_gettime(clock)):
        LIBC.usleep(100_000)


sys.setswitchinterval(60)  # a thread gives the GIL up only where it waits
torch.set_num_threads(1)
of_op, of_kernel = Library("interceptor", "DEF"), Library("interceptor", "IMPL")
of_op.define("double(Tensor x) -> Tensor")
of_op.impl("double", lambda x: x * 0, "CompositeExplicitAutograd")
script = torch.jit.CompilationUnit(SCRIPT).call
begins, x = threading.Event(), torch.ones(1)


def call() -> None:
    begins.set()
    print(script(x).item())


thread = threading.Thread(target=call)


def load() -> None:
    of_kernel.impl("double", lambda x: x * 2, "CPU")
    thread.start()
    begins.wait()
    hold_until_it_waits(thread)


FirstCall("interceptor", ["double"], "CPU", lambda: load).settle()
overwrite_freed_memory()
thread.join()

"""Removes kernels in Python that threads have reached; prints what their calls find.

One thread waits for the GIL at the kernel of the first call, one at the gate. If a kernel is freed
with them there, this process crashes.
"""

import ctypes
import linecache
import sys
import threading
import time

import torch
from torch.library import Library

from torchwheel.runtime.first_call import FirstCall

LIBC = ctypes.PyDLL(None)  # its functions run with the GIL
LIBC.malloc.restype = ctypes.c_void_p
LIBC.memset.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t

# It computes without the GIL before it calls, so the thread that waits for the GIL takes it.
SCRIPT = """
def call(x):
    y = torch.ones([100000])
    for i in range(100):
        y = y.cos()
    return torch.ops.{}.double(x)
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


def found_by_threads(name: str) -> list[float]:
    of_op, of_kernel = Library(name, "DEF"), Library(name, "IMPL")
    of_op.define("double(Tensor x) -> Tensor")
    of_op.impl("double", lambda x: x * 0, "CompositeExplicitAutograd")
    script = torch.jit.CompilationUnit(SCRIPT.format(name)).call
    x = torch.ones(1)
    threads: list[threading.Thread] = []
    found: list[float] = []

    def reach() -> None:
        begins = threading.Event()

        def call() -> None:
            begins.set()
            found.append(script(x).item())

        threads.append(threading.Thread(target=call))
        threads[-1].start()
        begins.wait()
        hold_until_it_waits(threads[-1])

    def load() -> None:
        overwrite_freed_memory()
        of_kernel.impl("double", lambda x: x * 2, "CPU")
        reach()

    first = FirstCall(name, ["double"], "CPU", lambda: load)
    reach()
    first.settle()
    overwrite_freed_memory()
    for thread in threads:
        thread.join()
    return found


sys.setswitchinterval(60)  # a thread gives the GIL up only where it waits
torch.set_num_threads(1)
linecache.checkcache = lambda _=None: None  # torch asks it for lines, and it gives the GIL up
print(found_by_threads("reached"))

"""Memory that a process keeps between calls."""

import ctypes
import platform

# glibc's numbers of mallopt's options (malloc.h), and what each is set to.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEEP = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 100_000_000, _ARENA_MAX: 1}


def keep_memory() -> None:
    """Has this process keep the memory that it frees, for later calls; does nothing but with Linux's glibc.

    By default glibc gives large pieces back to the system, and XLA's next call waits for each of their pages anew: a
    convolution or a Hessian product can take much longer for it. The price: memory once used stays with the process
    until it ends, and all threads share one pool of it. The command line does this by itself; in a program of your
    own, call it first, since what threads already have is not changed.

    Example:
        >>> import principalflow as pf
        >>> pf.keep_memory()
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _KEEP.items():
            mallopt(option, value)

"""Keep freed memory in the process instead of returning it to the system."""

import ctypes
import os

SETTING = "RELUCID_ALLOCATOR"
# Parameters of glibc's mallopt, from malloc.h, and the largest values that it accepts.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_INT, LARGEST_MMAP_THRESHOLD = 2**31 - 1, 32 << 20

_kept = False


def keep_memory() -> bool:
    """Make this process reuse the memory it frees, for good; return whether that worked.

    A step of training frees its activations and asks for as many bytes again in the next one. By default glibc
    returns large blocks to the system at once, and a fresh page costs more than the arithmetic on it. The command
    line and the worker processes of a study call this; a program of yours calls it itself if it wants to. The
    environment variable ``RELUCID_ALLOCATOR=default`` leaves the allocator as it is. It does nothing where the C
    library is not glibc.
    """
    global _kept
    if os.environ.get(SETTING) == "default":
        return False
    if os.name != "posix" or not hasattr(library := ctypes.CDLL(None), "gnu_get_libc_version"):
        return False
    mallopt = library.mallopt
    _kept = bool(mallopt(TRIM_THRESHOLD, LARGEST_INT) and mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD))
    return _kept


def memory_is_kept() -> bool:
    """Whether `keep_memory` has worked in this process."""
    return _kept

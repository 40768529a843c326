"""Compiled loops for weights from latitudes, on CPUs in float32 (kernels.c); torch's operations do the rest.

They are built when the package is installed, if there is a C compiler (hatch_build.py at the root of the repository).
"""

import ctypes
import os
import zlib
from pathlib import Path

import torch
from torch import Tensor

from relucid.nn.tracing import has_values

HERE = Path(__file__).parent


def library_path(folder: Path) -> Path:
    """Where the kernels in ``folder`` are built; the path changes with the source."""
    return folder / f"kernels-{zlib.crc32((folder / 'kernels.c').read_bytes()):08x}.so"


def _load() -> ctypes.CDLL | None:
    if os.environ.get("RELUCID_KERNELS") == "0":
        return None
    array, size, number = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
    try:
        found = ctypes.CDLL(str(library_path(HERE)))
        found.is_threaded.argtypes, found.is_threaded.restype = [], number
        found.vectors.argtypes = [array, array, size, size, number, array, array, number]
        found.pulls.argtypes = [array, size, array, array, size, size, array, array, number]
        found.vectors.restype = found.pulls.restype = None
    except (OSError, AttributeError):  # not built, for another system, or damaged
        return None
    return found


_library = _load()


def are_built() -> bool:
    """Whether weights on a CPU in float32 are computed by compiled kernels; ``RELUCID_KERNELS=0`` turns them off.

    Kernels built by a compiler without OpenMP have one thread, and are not used where torch has several.
    """
    return _library is not None and (torch.get_num_threads() == 1 or _library.is_threaded() == 1)


def apply_to(*tensors: Tensor | None) -> bool:
    """Whether the kernels are there and can compute with these tensors.

    They cannot while a dispatch mode observes every operation (that of `relucid.inspect`, say): it would not see them.
    """
    return (
        are_built()
        and torch._C._len_torch_dispatch_stack() == 0
        and all(x is None or (x.dtype == torch.float32 and x.is_cpu and has_values(x)) for x in tensors)
    )


def write_vectors(x: Tensor, scale: Tensor | None, latitude: bool, w: Tensor, p: Tensor) -> None:
    """Write w, (..., n), and p, (..., n - 1), contiguous, for latitudes or angles x, (..., n - 1)."""
    assert _library is not None
    x, scale = _plain(x), None if scale is None else _plain(scale)
    _library.vectors(
        x.data_ptr(),
        None if scale is None else scale.data_ptr(),
        x.numel() // x.shape[-1],
        x.shape[-1],
        latitude,
        w.data_ptr(),
        p.data_ptr(),
        torch.get_num_threads(),
    )


def write_pulls(g: Tensor, w: Tensor, p: Tensor, pull: Tensor, inner: Tensor) -> None:
    """Write the gradient in the latitudes and <g, w>, for matrices; all but g contiguous, no p is 0."""
    assert _library is not None
    g = g.resolve_neg() if g.stride(1) == 1 else _plain(g)
    _library.pulls(
        g.data_ptr(),
        g.stride(0),
        w.data_ptr(),
        p.data_ptr(),
        *p.shape,
        pull.data_ptr(),
        inner.data_ptr(),
        torch.get_num_threads(),
    )


def _plain(x: Tensor) -> Tensor:
    """The same numbers, as they are meant, one after another in memory."""
    return x.resolve_neg().contiguous()

"""Compile the kernels (src/relucid/nn/kernels.c) into the package, if there is a C compiler."""

import os
import shlex
import subprocess
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
# Not every compiler knows threads, or functions in versions for several processors.
CHOICES = [["-fopenmp"], ["-fopenmp", "-DONE_VERSION"], ["-DONE_VERSION"]]


class Kernels(BuildHookInterface):
    """Builds ``kernels-<checksum of the source>.so`` beside the source; without it, the package is pure Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        source = Path(self.root, "src", "relucid", "nn", "kernels.c")
        library = source.with_name(f"kernels-{zlib.crc32(source.read_bytes()):08x}.so")
        if not compiled(source, library):
            self.app.display_warning("no C compiler: geometric layers will use torch's operations alone")
            return
        for other in set(source.parent.glob("kernels-*.so")) - {library}:
            other.unlink()
        build_data["artifacts"].append(f"src/relucid/nn/{library.name}")
        build_data["pure_python"] = False
        # For any Python; for this system, as libraries for any Linux ("manylinux") would need an old compiler.
        system = next(tag for tag in platform_tags() if not tag.startswith(("many", "musl")))
        build_data["tag"] = f"py3-none-{system}"


def compiled(source: Path, library: Path) -> bool:
    """Whether one of the choices of flags compiles ``source``."""
    unfinished = library.with_suffix(f".{os.getpid()}")
    for choice in CHOICES:
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            *FLAGS,
            *choice,
            str(source),
            "-o",
            str(unfinished),
            "-lm",
        ]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        unfinished.replace(library)  # at once: a running process may have the old one open
        return True
    return False

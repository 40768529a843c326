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
        problem = compiled(source, library)
        for other in source.parent.glob("kernels-*.so"):
            if problem is not None or other != library:
                other.unlink(missing_ok=True)
        if problem is not None:
            said = f"{source.name} could not be compiled ({problem})"
            self.app.display_warning(f"{said}: geometric layers will use torch's operations alone")
            return
        build_data["artifacts"].append(f"src/relucid/nn/{library.name}")
        build_data["pure_python"] = False
        # For any Python; for this system, as libraries for any Linux ("manylinux") would need an old compiler.
        system = next(tag for tag in platform_tags() if not tag.startswith(("many", "musl")))
        build_data["tag"] = f"py3-none-{system}"


def compiled(source: Path, library: Path) -> str | None:
    """Compile ``source`` by the first choice of flags that works; return why none does, or None."""
    problem = ""
    unfinished = library.with_name(f".{os.getpid()}.so")  # neither in version control nor in a wheel
    for choice in CHOICES:
        try:
            command = [*shlex.split(os.environ.get("CC") or "cc"), *FLAGS, *choice, str(source), "-lm"]
            subprocess.run([*command, "-o", str(unfinished)], check=True, capture_output=True, text=True)
            unfinished.replace(library)  # at once: a running process may have the old one open
        except subprocess.CalledProcessError as error:
            problem = (error.stderr.strip().splitlines() or [str(error)])[-1]
        except (OSError, ValueError) as error:  # no compiler, no place to write, quotes that do not match
            problem = str(error)
        else:
            return None
        finally:
            unfinished.unlink(missing_ok=True)
    return problem

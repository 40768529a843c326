import os
import platform
import subprocess
import sys

import pytest

from relucid import memory
from relucid.memory import keep_memory

SCRIPT = """
import resource, runpy, sys
runpy.run_path(sys.argv[1])["keep_memory"]()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * (16 << 20) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([faults() for _ in range(4)][-1])
"""


def new_pages(setting):
    """How many pages a process takes to allocate the 128 MB again that it has just freed: 32,768 if all are new."""
    command = [sys.executable, "-c", SCRIPT, memory.__file__]
    environment = {**os.environ, "RELUCID_ALLOCATOR": setting}
    return int(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is glibc's")
def test_freed_memory_is_used_again_unless_the_environment_says_otherwise():
    assert new_pages("keep") < 1000
    assert new_pages("default") > 30_000


def test_whether_the_allocator_was_changed_is_reported(monkeypatch):
    monkeypatch.setenv("RELUCID_ALLOCATOR", "default")
    assert not keep_memory()
    monkeypatch.delenv("RELUCID_ALLOCATOR")
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")

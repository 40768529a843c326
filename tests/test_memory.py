import os
import platform
import subprocess
import sys

import pytest

from relucid import memory
from relucid.memory import keep_memory

SCRIPT = """
import runpy, sys
runpy.run_path(sys.argv[1])["keep_memory"]()

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

blocks = [b"x" * (16 << 20) for _ in range(8)]
most = resident()
del blocks
print((most - resident()) >> 10)
"""


def returned(setting):
    """How many of 128 MB a process returns to the system when it frees them."""
    command = [sys.executable, "-c", SCRIPT, memory.__file__]
    environment = {**os.environ, "RELUCID_ALLOCATOR": setting}
    return int(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is glibc's")
def test_freed_memory_is_kept_for_later_unless_the_environment_says_otherwise():
    assert returned("keep") < 16
    assert returned("default") > 100


def test_whether_the_allocator_was_changed_is_reported(monkeypatch):
    monkeypatch.setenv("RELUCID_ALLOCATOR", "default")
    assert not keep_memory()
    monkeypatch.delenv("RELUCID_ALLOCATOR")
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")

"""Import modules and print what has changed in the process, for test_import.py.

Arguments: modules to import before one looks, and modules to import then, with commas between them.
"""

import hashlib
import importlib
import sys
import warnings

import torch
from torch import nn
from torch.optim import optimizer

looked_up = []  # in C libraries: `mallopt` would change the allocator for good
sys.addaudithook(lambda event, args: event == "ctypes.dlsym" and looked_up.append(args[1]))


def functions(owner):
    return {name: id(value) for name, value in vars(owner).items() if callable(value)}


def sizes(module, word):
    return {
        name: len(value) for name, value in vars(module).items() if word in name and hasattr(value, "__len__")
    }


def state():
    return {
        "optimizers": sizes(optimizer, "_"),
        "hooks of all modules": sizes(nn.modules.module, "_global"),
        "nn.Module": functions(nn.Module),
        "torch": functions(torch),
        "torch.Tensor": functions(torch.Tensor),
        "torch.nn.functional": functions(nn.functional),
        "torch.nn.init": functions(nn.init),
        "safe globals": len(torch.serialization.get_safe_globals()),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "warnings": list(map(str, warnings.filters)),
        "random state": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "hooks of the interpreter": (sys.excepthook, sys.displayhook, sys.unraisablehook),
        "allocator": looked_up.count("mallopt"),
    }


if __name__ == "__main__":
    others, modules = (argument.split(",") for argument in sys.argv[1:])
    for name in filter(None, others):
        importlib.import_module(name)
    before = state()
    for name in modules:
        importlib.import_module(name)
    after = state()
    print([name for name in before if before[name] != after[name]])

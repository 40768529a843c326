"""Commands drawn at random, most of them wrong: each does its work, or says in a sentence why it does not."""

import io
import os
import random
import resource
import shutil
import sys
import zipfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from relucid.cli import main

STUDY = """
from relucid.experiments import Column, Scale, Study

def run(x, seed=0, broken=False):
    if broken and x == 2:
        raise RuntimeError("no way")
    return {"value": x ** 2 + seed}

study = Study("squares", "How large squares are", run, rows={"one": {"x": 1}, "two": {"x": 2}},
    columns={"value": Column("value")}, repeat={"seed": [0, 1]},
    scales={"small": Scale({"broken": False}), "broken": Scale({"broken": True})})
"""
NETWORKS = """
import os, sys
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

def image():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))

def paired():
    net = build()
    net[0].weight.data[2:] = -net[0].weight.data[:2]
    return net.double()

def without_parameters():
    return nn.Sequential(nn.ReLU())

def embedding():
    return nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 4), nn.ReLU())

def with_arguments(width):
    return nn.Linear(3, width)

def nothing():
    pass

def leaves():
    sys.exit(0)

def raises():
    raise OSError(2, "no such thing")

def says_nothing():
    raise Exception

def recursive():
    return recursive()

class Leaves(nn.Module):
    def forward(self, x):
        sys.exit()

class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

class Raises(nn.Module):
    def forward(self, x):
        raise KeyError("x")

class Strange(nn.Module):
    def forward(self, x):
        return "a string"

def batches():
    return [(torch.eye(3), torch.zeros(3)), (-torch.eye(3), torch.zeros(3))]

def broken_batches():
    yield torch.eye(3)
    raise LookupError

def odd_batches():
    return [torch.eye(3), "text", None, torch.eye(4)]

network, number = build(), 3
"""
FILES = {
    "squares.py": STUDY,
    "two.py": STUDY
    + "other = Study('other', '', run, {'one': {}}, {'value': Column('value')}, repeat={'seed': []})\n",
    "nets.py": NETWORKS,
    "leaves.py": "import sys\nsys.exit(0)\n",
    "quits.py": "quit()\n",
    "typo.py": "def build(:\n",
    "empty.py": "",
    "raises.py": "raise RuntimeError\n",
    "imports.py": "import nowhere\n",
    "parses.py": "import argparse\nargparse.ArgumentParser().parse_args()\n",
    "latin.py": "# \xe9\n",
    "text.txt": "some text\n",
    "page.html": "an earlier page",
    "bad.json": '{"study": "squares", "runs": [{}]}',
    "bad.jsonl": '{"key": 1}',
    "text.pt": "epoch,loss\n",
    "text.npy": "1 2 3\n",
    "text.safetensors": "some text\n",
    "empty.pt": "",
    "empty.npy": "",
}
PRECIOUS = {"thesis/thesis.tex": "a thesis", "link-to.html": "linked to"}


def lay_out(place: Path) -> None:
    """Write all files that commands may name."""
    for name, text in FILES.items():
        (place / name).write_text(text, encoding="latin-1")
    for name, text in PRECIOUS.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    (place / "folder").mkdir()
    (place / "corrupt").mkdir()
    (place / "records").mkdir()
    (place / "corrupt" / "results.sqlite").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)
    (place / "link.html").symlink_to("link-to.html")
    (place / "dangling.html").symlink_to("nowhere.html")
    (place / "loop.pt").symlink_to("loop.pt")
    os.mkfifo(place / "pipe.html")
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    weights = network.state_dict()
    torch.save(weights, place / "w.pt")
    torch.save({"state_dict": {f"model.{n}": v for n, v in weights.items()}}, place / "lightning.ckpt")
    torch.save(network, place / "pickled.pt")
    torch.save(network, place / "old.pt", _use_new_zipfile_serialization=False)
    torch.save([1, "a"], place / "list.pt")
    torch.save({1: torch.zeros(1)}, place / "numbers.pt")
    torch.jit.save(torch.jit.trace(network, torch.zeros(1, 3)), place / "script.pt")
    save_file(weights, place / "w.safetensors")
    for whole in ("w.pt", "pickled.pt", "old.pt", "script.pt", "w.safetensors"):
        data = (place / whole).read_bytes()
        (place / f"half-{whole}").write_bytes(data[: len(data) // 2])
        (place / f"bits-{whole}").write_bytes(data[:200] + bytes(b ^ 255 for b in data[200:260]) + data[260:])
    with zipfile.ZipFile(place / "archive.pt", "w") as archive:
        archive.writestr("a.txt", "no weights")
    for name, array in {
        "x": np.ones((5, 3), np.float32),
        "x64": np.ones((5, 3)),
        "whole": np.ones((5, 3), int),
        "wide": np.ones((5, 7), np.float32),
        "none": np.ones((0, 3), np.float32),
        "scalar": np.float32(1),
        "words": np.array(["a", "b"]),
        "complex": np.ones((5, 3), complex),
        "nan": np.full((5, 3), np.nan, np.float32),
    }.items():
        np.save(place / f"{name}.npy", array)
    np.save(place / "objects.npy", np.array([None, {}]), allow_pickle=True)


def split(text: str) -> list[str]:
    return text.split()


# Nothing outside the working directory that could be replaced is ever named: these commands may run as root.
LONG = "n" * 300
OURS = split("squares.py squares.py:squares two.py two.py:other quickstart quickstrat crelu/ squares.py:none")
PLACES = split("missing.py folder folder/x.py text.txt/x.py loop.pt .py é")
STUDIES = [*OURS, *PLACES, *(name for name in FILES if name.endswith(".py")), LONG, f"{LONG}.py", ""]
QUICK = [name for name in STUDIES if name != "quickstart"]  # a study that takes no time
INSIDE = split("""build image paired without_parameters embedding with_arguments nothing leaves raises says_nothing
    recursive Leaves Branches Raises Strange batches network number missing torch""")
NETWORK = [f"nets.py:{name}" for name in [*INSIDE, LONG, ""]] + [f"nets:{name}" for name in INSIDE[:5]]
NETWORK += [f"{name}:build" for name in STUDIES]
NETWORK += split("resnet8 resnet8:3 resnet8:0 resnet9 mlp nowhere:build")
NETWORK += [*split("os:getcwd torch.nn:Linear : ..:x nets.build this:x"), "a b:c"]
DAMAGED = [f"{how}-{name}.pt" for how in ("half", "bits") for name in ("w", "pickled", "old", "script")]
CHECKPOINTS = split("""w.pt lightning.ckpt pickled.pt old.pt list.pt numbers.pt script.pt w.safetensors text.pt
    text.safetensors empty.pt archive.pt missing.pt folder half-w.safetensors bits-w.safetensors loop.pt
    x.npy""")
CHECKPOINTS += [*DAMAGED, f"{LONG}.pt", ""]
DATA = split("""x.npy x64.npy whole.npy wide.npy none.npy scalar.npy words.npy complex.npy nan.npy objects.npy text.npy
    empty.npy missing.npy w.pt list.pt half-w.pt text.txt nets:batches nets:broken_batches nets:odd_batches
    nets:leaves nets:number folder""")
DATA += [LONG, ""]
SHAPES = split("2,3 1,3,8,8 2,7 0,3 3 1 , a 2,-3 2,3, ²,3 1e3 999999,999999,999999")
SHAPES += ["9" * 30, "1," * 70 + "1", ""]
OUTPUTS = split("""new new.html folder thesis page.html link.html dangling.html pipe.html /proc/out missing/out
    text.txt/out .""")
OUTPUTS += [LONG, f"{LONG}/{LONG}", ""]
RECORDS = [*split("bad.json bad.jsonl text.txt corrupt folder missing.json loop.pt"), LONG, ""]
NUMBERS = ["1", "2", "0", "-1", "x", "", "nan", "inf", "1e400", "9" * 40]
OPTIONS = {
    "--scale": ["small", "broken", "smoke", "", LONG],
    "--only": ["one", "two", "tow", ""],
    "--seeds": NUMBERS,
    "--jobs": ["1"],
    "--executor": ["local", "slurm", ""],
    "--store": ["runs", "corrupt", "folder", "text.txt", "/proc/store", LONG, "", "link.html", "pipe.html"],
    "--format": ["json", "csv", "latex", "markdwn", ""],
    "--results": ["records", "folder", "text.txt", "missing", LONG],
    "--to": ["crelu", "merge", "geometric", "heavy-ball", "plain", "crelo", ""],
    "--example": SHAPES,
    "--data": DATA,
    "--checkpoint": CHECKPOINTS,
    "--against": NETWORK[:20] + CHECKPOINTS,
    "--layers": ["0", "*", "auto", "nine", ""],
    "--tolerance": NUMBERS,
    "-o": OUTPUTS,
}
FLAGS = ["--force", "--json", "--unsafe-pickle", "--dry-run", "--retry", "--quiet", "--help"]
COMMANDS = {  # what an argument is drawn from, options that are always there, options that may be
    "run": (
        [name for name in STUDIES if name != "quickstart"],
        ["--jobs"],
        ["--scale", "--only", "--seeds", "--executor", "--store"],
    ),
    "show": (STUDIES, [], ["--scale", "--only", "--seeds", "--format", "--store"]),
    "logs": (STUDIES, [], ["--scale", "--only", "--seeds", "--store"]),
    "report": (STUDIES, ["-o"], ["--scale", "--store"]),
    "examine": (NETWORK, [], ["--example", "--data", "--checkpoint", "--against", "-o"]),
    "convert": (
        NETWORK,
        ["--to", "--example", "-o"],
        ["--checkpoint", "--layers", "--tolerance"],
    ),
    "import": (RECORDS, [], ["--store"]),
    "claims": ([*split("crelu gmp cerlu"), ""], ["--results"], ["--store"]),
    "list": ([None], [], []),
    "shwo": (STUDIES, [], list(OPTIONS)),
}


def drawn(generator: random.Random) -> list[str]:
    """A command, with options that it has, most of the time."""
    weights = [4, 4, 3, 3, 10, 10, 3, 1, 1, 1]
    (command,) = generator.choices(list(COMMANDS), weights)
    arguments, always, sometimes = COMMANDS[command]
    words = [command]
    if (argument := _pick(generator, arguments)) is not None:
        words.append(argument)
    if command == "examine" and generator.random() < 0.8:
        always = ["--example"]
    for option in [*always, *(o for o in sometimes if o not in always and generator.random() < 0.3)]:
        words += [option, _pick(generator, OPTIONS[option])]
    allowed = {
        "run": FLAGS,
        "examine": FLAGS[:3],
        "convert": FLAGS[::2],
        "report": FLAGS[:1],
        "list": FLAGS[1:2],
    }
    for flag in allowed.get(command, FLAGS[-2:-1]):
        if generator.random() < (0.5 if flag == "--force" else 0.1):
            words.append(flag)
    if generator.random() < 0.02:
        words.insert(generator.randrange(len(words) + 1), generator.choice(["--nonsense", "x", "--", "-"]))
    return words


def _pick(generator: random.Random, values: list) -> str | None:
    """The first, which is right, or any: a command that is wrong in one place only gets far."""
    return values[0] if generator.random() < 0.5 else generator.choice(values)


@contextmanager
def disk_of(size: int | None):
    """No file can grow beyond `size` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def typed(words: list[str], size: int | None) -> tuple[int, str, str]:
    """Status, output and complaints of a command; an exception that reaches the user is raised."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["relucid", *words]
    with redirect_stdout(out), redirect_stderr(err), disk_of(size):
        try:
            main()
            status: object = "main() returned"
        except SystemExit as ended:
            status = ended.code
    if isinstance(status, str):  # what sys.exit prints
        return 1, out.getvalue(), err.getvalue() + status + "\n"
    return int(status or 0), out.getvalue(), err.getvalue()  # type: ignore[call-overload]


def fault(words: list[str], status: int, out: str, err: str) -> str | None:
    """What is wrong with an answer, if anything is."""
    if "Traceback" in err:
        return "a traceback"
    if status != 0:
        last = err.strip().splitlines()[-1:]
        explained = last and (last[0].startswith("relucid: ") or status == 2 or words[0] == "run")
        return None if explained else "a failure without a word"
    if "--help" in words or "--quiet" in words:
        return None
    if words[0] in ("list", "show", "examine", "convert", "run", "logs") and not out.strip():
        return "nothing shown"
    for option, value in pairwise(words):
        if option == "-o" and not Path(value).exists():
            return "nothing written"
    return None


def trial(place: Path, number: int, seed: int) -> list[str]:
    """Type so many commands in a directory; all that went wrong."""
    generator, wrong = random.Random(seed), []
    for _ in range(number):
        words = drawn(generator)
        size = generator.choice([0, 3000, 100_000]) if generator.random() < 0.05 else None
        label = f"{' '.join(map(repr, words))}{'' if size is None else f' on a disk of {size} bytes'}"
        try:
            status, out, err = typed(words, size)
        except BaseException as error:
            wrong.append(f"{label}: {type(error).__name__}: {error}"[:500])
            continue
        if found := fault(words, status, out, err):
            wrong.append(f"{label}: {found}: {status} {err[-300:]}")
        wrong += [
            f"{label}: {name} is lost" for name, text in PRECIOUS.items() if _read(place / name) != text
        ]
        wrong += [f"{label}: {path} is left" for path in place.rglob(".relucid-*")]
        _clear(place)
    return wrong


def _clear(place: Path) -> None:
    """Remove results, so that the next command finds none."""
    for path in place.glob("new*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with everything that can be named in it."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delenv("RELUCID_STORE", raising=False)
    monkeypatch.setattr(os, "execv", lambda *_: sys.exit("relucid: torchrun would start"))
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if _lies_in(module, tmp_path)]:
        del sys.modules[name]


def _lies_in(module: object, place: Path) -> bool:
    return str(getattr(module, "__file__", None)).startswith(str(place))


@pytest.mark.filterwarnings("ignore")
def test_a_few_commands_drawn_at_random_end_in_a_sentence(place, request):
    assert trial(place, 40, request.config.getoption("seed")) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_thousand_commands_drawn_at_random_end_in_a_sentence(place, request):
    assert trial(place, 2000, request.config.getoption("seed")) == []

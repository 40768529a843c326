"""Conversions that are deliberately wrong, each in one way, and some that are right: the check must tell them apart.

A mutation spoils the converted copy after the layers were changed and before it is checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import ConversionError, to_crelu, to_geometric

CONVERSIONS = {"to_crelu": to_crelu, "to_geometric": to_geometric}


@contextmanager
def spoiling(tamper: Callable[[nn.Module], object]) -> Iterator[None]:
    """Spoil every copy that is about to be checked; candidates are not left out one by one meanwhile."""
    from relucid.convert import _expand, geometric, search
    from relucid.convert.copies import separate

    applied = search.applied

    def spoiled(steps, model):
        trial = applied(steps, model)
        separate(trial, trial)  # it shares the original's memory
        tamper(trial)
        return trial

    def once(names, attempt, reaching=None):
        return attempt(list(names), {})

    with (
        mock.patch.object(search, "applied", spoiled),
        mock.patch.object(_expand, "largest_valid_subset", once),
        mock.patch.object(geometric, "largest_valid_subset", once),
    ):
        yield


class Net(nn.Module):
    """Norms, pooling, flatten, a shared ReLU; `end` says what becomes of the logits."""

    def __init__(self, end=lambda y, x: y):
        super().__init__()
        self.a, self.na = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.r1, self.nb = nn.ReLU(), nn.BatchNorm2d(8)
        self.b, self.r2 = nn.Conv2d(8, 6, 3, padding=1), nn.ReLU()
        self.c, self.d, self.drop = nn.Linear(6 * 16, 20), nn.Linear(20, 5), nn.Dropout(0.1)
        self.spare, self.end = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), end

    def forward(self, x):
        h = self.r1(self.na(self.a(x)))
        h = self.r2(self.b(self.nb(h)))
        h = F.relu(self.c(F.adaptive_max_pool2d(h, 4).flatten(1)))
        return self.end(self.d(self.drop(h)), x)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.i, self.a, self.b, self.o = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.o(F.relu(self.b(F.relu(self.a(F.relu(self.i(x)))))))


class Auxiliary(nn.Module):
    """A head that runs in training only, with targets or without."""

    def __init__(self, targets=False):
        super().__init__()
        self.a, self.r, self.b, self.aux = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Linear(8, 3)
        self.targets = targets

    def forward(self, x, targets=None):
        h = self.r(self.a(x))
        if not self.training:
            return self.b(h)
        if self.targets and targets is None:
            raise ValueError("in training, targets should be given")
        return (self.b(h), self.aux(h)) if targets is None else F.cross_entropy(self.aux(h), targets)


class Mixed(nn.Module):
    """Layers that no conversion of ReLU changes beside those that it does."""

    def __init__(self):
        super().__init__()
        self.words, self.inner = nn.Embedding(11, 8), nn.Linear(8, 12)
        self.norm, self.back, self.gru = nn.LayerNorm(8), nn.Linear(12, 8), nn.GRU(8, 6, batch_first=True)
        self.groups, self.act, self.out = nn.GroupNorm(2, 6), nn.PReLU(6), nn.Linear(6, 3)

    def forward(self, ids):
        h = self.words(ids)
        h = self.norm(h + self.back(F.relu(self.inner(h))))
        return self.out(self.act(self.groups(self.gru(h)[0].mean(1))))


class Depthwise(nn.Module):
    """A depthwise and a transposed convolution, which carry and read both phases."""

    def __init__(self):
        super().__init__()
        self.a, self.r = nn.Conv2d(3, 6, 1), nn.ReLU()
        self.deep, self.up = nn.Conv2d(6, 6, 3, groups=6, padding=1), nn.ConvTranspose2d(6, 4, 2, 2)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.up(self.deep(self.r(self.a(x)))).mean((2, 3)))


class Filled(nn.Module):
    """A policy that writes what it computes into a list, or a dictionary, that it is given."""

    def __init__(self):
        super().__init__()
        self.a, self.r, self.b = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x, into):
        y = self.b(self.r(self.a(x)))
        into.append(y) if isinstance(into, list) else into.update(value=y)


def deep(depth=30):
    unit = (
        m
        for _ in range(depth)
        for m in (nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    )
    return nn.Sequential(nn.Conv2d(3, 8, 1), *unit, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def in_dtype(dtype):
    return lambda: Net().to(dtype)


def masked():
    return Net(lambda y, x: y + torch.tensor([0, 0, -1e9, 0, 0]).to(y))


def stamped():
    return Net(lambda y, x: torch.cat((y, 1e7 * x[:, :1, 0, 0]), 1))


def dead():
    net = Net()
    net.c.bias.data[3] = -100.0
    return net


def hooked(place, kind, function):
    def build():
        net = Net()
        getattr(net.get_submodule(place), f"register_{kind}")(function)
        return net

    return build


def hooked_parameter(kind, function):
    def build():
        net = Net()
        getattr(net.c.weight, f"register_{kind}")(function)
        return net

    return build


def evaluating():
    """A norm that the user has put into evaluation, frozen."""
    net = Net()
    net.nb.eval().requires_grad_(False)
    return net


def images(n=6):
    return torch.randn(n, 3, 12, 12)


def rows():
    return torch.randn(5, 6)


def words():
    return torch.randint(11, (4, 7))


# Ways to spoil


def nothing(net):
    pass


def at(path, change):
    """Change the numbers of a tensor in place."""

    def tamper(net):
        module, _, leaf = path.rpartition(".")
        with torch.no_grad():
            change(getattr(net.get_submodule(module), leaf))

    return tamper


def setting(path, key, value):
    return lambda net: setattr(net.get_submodule(path), key, value)


def unhooked(path, *kinds):
    def tamper(net):
        for kind in kinds:
            getattr(net.get_submodule(path), f"_{kind}_hooks").clear()

    return tamper


def frozen(path):
    return lambda net: net.get_parameter(path).requires_grad_(False)


def untied(net):
    net.b.weight = nn.Parameter(net.b.weight.detach().clone())


def exchanged(net):
    net.na, net.nb = net.nb, net.na


def swapped(w):
    w[:, [0, 16]] = w[:, [16, 0]]  # two channels after flatten, one place each


def reordered(w):
    """The phases of every channel side by side, though they come one half after the other."""
    half = w[:, : w.shape[1] // 2].clone()
    w.zero_()[:, ::2] = half


def parameter_as_buffer(net):
    bias = net.d.bias.detach().clone()
    del net.d.bias
    net.d.register_buffer("bias", bias)


class Case(NamedTuple):
    """A network, an example, and what is spoiled after the conversion."""

    conversion: str
    network: Callable[[], nn.Module]
    example: Callable[[], object]
    tamper: Callable[[nn.Module], object]


def crelu(tamper, network=Net, example=images):
    return Case("to_crelu", network, example, tamper)


def geometric(tamper, network=Net, example=images):
    return Case("to_geometric", network, example, tamper)


HALF = torch.bfloat16
RIGHT = {
    "none": crelu(nothing),
    "none, masked column": crelu(nothing, masked),
    "none, 30 norms in training": crelu(nothing, deep),
    "none, a dead unit": crelu(nothing, dead),
    "none, tied weights": crelu(nothing, Tied, rows),
    "none, objects": crelu(nothing, lambda: Net(lambda y, x: SimpleNamespace(mean=y))),
    "none, bfloat16": crelu(nothing, in_dtype(HALF), lambda: images().to(HALF)),
    "none, targets": crelu(nothing, lambda: Auxiliary(True), lambda: (rows(), torch.arange(5) % 3)),
    "none, a frozen norm in evaluation": crelu(nothing, evaluating),
    "none, embedding and recurrence": crelu(nothing, Mixed, words),
    "none, depthwise": crelu(nothing, Depthwise),
    "none, a list is filled": crelu(nothing, Filled, lambda: (rows(), [])),
    "geometric: none": geometric(nothing),
    "geometric: none, 30 norms": geometric(nothing, deep),
    "geometric: none, a dead unit": geometric(nothing, dead),
    "geometric: none, bfloat16": geometric(nothing, in_dtype(HALF), lambda: images().to(HALF)),
}
WRONG = {
    "sign flip in one column": crelu(at("d.weight", lambda w: w[:, 4].neg_())),
    "sign flip in a column of a dead unit": crelu(at("d.weight", lambda w: w[:, 3].neg_()), dead),
    "one weight off by 1%": crelu(at("b.weight", lambda w: w[2, 3, 1, 1].mul_(1.01))),
    "one weight off by 0.1% in 30 norms": crelu(at("34.weight", lambda w: w[2, 3, 1, 1].mul_(1.001)), deep),
    "two channels swapped after flatten": crelu(at("c.weight", swapped)),
    "phases in another order": crelu(at("c.weight", reordered)),
    "new columns of 1e-4": crelu(at("c.weight", lambda w: w[:, 96:].fill_(1e-4))),
    "mean of one channel of a norm": crelu(at("nb.running_mean", lambda w: w[2].add_(0.01))),
    "variances of a norm not kept": crelu(at("nb.running_var", lambda w: w.fill_(1.0))),
    "weight of a norm not kept, one channel": crelu(at("nb.weight", lambda w: w[1].mul_(1.001))),
    "epsilon of a norm": crelu(setting("nb", "eps", 1e-3)),
    "momentum of a norm": crelu(setting("nb", "momentum", 0.2)),
    "bias lost": crelu(setting("c", "bias", None)),
    "bias of one unit off by 1e-3": crelu(at("c.bias", lambda b: b[7].add_(1e-3))),
    "bias of a dead unit": crelu(at("c.bias", lambda b: b[3].add_(1.0)), dead),
    "masked column, another column off by 10%": crelu(at("d.weight", lambda w: w[0].mul_(1.1)), masked),
    "masked column, another bias off by 1": crelu(at("d.bias", lambda b: b[1].add_(1.0)), masked),
    "tied layers: one changed": crelu(untied, Tied, rows),
    "a head of training, one column": crelu(at("aux.weight", lambda w: w[:, 2].neg_()), Auxiliary, rows),
    "forward hook lost": crelu(
        unhooked("c", "forward"), hooked("c", "forward_hook", lambda m, a, y: y * 1.5)
    ),
    "backward hook lost": crelu(
        unhooked("c", "backward"),
        hooked(
            "c", "full_backward_hook", lambda m, gi, go: tuple(None if g is None else 0.1 * g for g in gi)
        ),
    ),
    # Not spoiled: the conversion itself would lose the hook, so it must refuse or keep it.
    "hook of a changed parameter": crelu(nothing, hooked_parameter("hook", lambda g: 0 * g)),
    "a weight frozen": crelu(frozen("d.weight")),
    "geometric: a latitude off by 1e-3": geometric(at("c.latitudes", lambda w: w[3, 5].add_(1e-3))),
    "geometric: a latitude off by 1e-3 in 30 norms": geometric(
        at("34.latitudes", lambda w: w[3, 5].add_(1e-3)), deep
    ),
    "geometric: a scale of the other sign": geometric(at("b.scale", lambda w: w[3].neg_())),
    "geometric: an offset": geometric(at("b.offset", lambda w: w[3].add_(1e-3))),
    "geometric: a dead unit's latitude": geometric(at("c.latitudes", lambda w: w[3, 5].add_(0.1)), dead),
    "geometric: ReLU left out": geometric(setting("b", "activation", None)),
    "geometric: padding left out": geometric(setting("b", "padding", (0, 0))),
    "geometric: padding circular": geometric(setting("b", "padding_mode", "circular")),
    # Beyond the first 31
    "a stamp of 1e7 beside, another column off": crelu(at("d.weight", lambda w: w[0].mul_(1.1)), stamped),
    "a stamp of 1e7 beside, another bias off": crelu(at("d.bias", lambda b: b[1].add_(0.1)), stamped),
    "an object returned, a bias off": crelu(
        at("d.bias", lambda b: b[1].add_(1.0)), lambda: Net(lambda y, x: SimpleNamespace(mean=y))
    ),
    "a distribution returned, one column": crelu(
        at("d.weight", lambda w: w[:, 4].neg_()), lambda: Net(lambda y, x: torch.distributions.Normal(y, 1.0))
    ),
    "a list is filled, one column": crelu(
        at("b.weight", lambda w: w[:, 2].neg_()), Filled, lambda: (rows(), [])
    ),
    "a dictionary is filled, a bias": crelu(
        at("b.bias", lambda b: b[1].add_(0.1)), Filled, lambda: (rows(), {})
    ),
    "targets in training, one column of their head": crelu(
        at("aux.weight", lambda w: w[:, 2].neg_()),
        lambda: Auxiliary(True),
        lambda: (rows(), torch.arange(5) % 3),
    ),
    "bfloat16, a weight off by 20%": crelu(
        at("d.weight", lambda w: w[2, 3].mul_(1.2)), in_dtype(HALF), lambda: images().to(HALF)
    ),
    "bfloat16, a sign flip in one column": crelu(
        at("d.weight", lambda w: w[:, 4].neg_()), in_dtype(HALF), lambda: images().to(HALF)
    ),
    "bfloat16, a bias off by 0.1": crelu(
        at("c.bias", lambda b: b[7].add_(0.1)), in_dtype(HALF), lambda: images().to(HALF)
    ),
    "bfloat16, geometric: a latitude off by 0.1": geometric(
        at("c.latitudes", lambda w: w[3, 5].add_(0.1)), in_dtype(HALF), lambda: images().to(HALF)
    ),
    "float16, gradients: a hook lost": crelu(
        unhooked("c", "backward"),
        lambda: hooked("c", "full_backward_hook", lambda m, gi, go: (0.5 * gi[0],))().half(),
        lambda: images().half(),
    ),
    "hook before a layer lost": crelu(
        unhooked("c", "forward_pre"), hooked("c", "forward_pre_hook", lambda m, a: (2 * a[0],))
    ),
    "hook of gradients before a layer lost": crelu(
        unhooked("c", "backward_pre"), hooked("c", "full_backward_pre_hook", lambda m, go: (2 * go[0],))
    ),
    "hook of a replaced ReLU that scales": crelu(
        unhooked("r1", "forward"), hooked("r1", "forward_hook", lambda m, a, y: 2 * y)
    ),
    "accumulated gradient's hook of a changed parameter": crelu(
        nothing, hooked_parameter("post_accumulate_grad_hook", lambda p: None)
    ),
    "a weight of a module that does not run": crelu(at("spare.0.weight", lambda w: w[1].mul_(1.1))),
    "statistics of a module that does not run": crelu(at("spare.1.running_mean", lambda w: w.add_(1.0))),
    "count of batches of a norm": crelu(at("na.num_batches_tracked", lambda n: n.add_(5))),
    "a dropout of another share": crelu(setting("drop", "p", 0.5)),
    "a norm out of evaluation": crelu(lambda net: net.nb.train(), evaluating),
    "a frozen norm trained": crelu(lambda net: net.nb.requires_grad_(True), evaluating),
    "two norms exchanged": crelu(exchanged),
    "a parameter turned into a buffer": crelu(parameter_as_buffer),
    "a parameter in float64": crelu(lambda net: net.spare.double()),
    "an entry of an embedding": crelu(at("words.weight", lambda w: w[7, 2].add_(0.01)), Mixed, words),
    "a word that the example lacks": crelu(
        at("words.weight", lambda w: w[10].add_(1.0)), Mixed, lambda: torch.randint(9, (4, 7))
    ),
    "weight of a layer norm, one feature": crelu(at("norm.weight", lambda w: w[3].mul_(1.01)), Mixed, words),
    "a recurrent weight": crelu(at("gru.weight_hh_l0", lambda w: w[3, 2].add_(0.01)), Mixed, words),
    "groups of a norm": crelu(setting("groups", "num_groups", 3), Mixed, words),
    "slopes that have moved": crelu(at("out.weight", lambda w: w[:, 1].mul_(1.01)), Mixed, words),
    "a depthwise filter of the other phase": crelu(at("deep.weight", lambda w: w[3].mul_(1.01)), Depthwise),
    "a depthwise bias": crelu(at("deep.bias", lambda b: b[2].add_(0.01)), Depthwise),
    "a transposed filter": crelu(at("up.weight", lambda w: w[2, 1, 0, 1].add_(0.01)), Depthwise),
    "padding reflected": crelu(setting("b", "padding_mode", "reflect")),
    "geometric: a latitude frozen": geometric(frozen("c.latitudes")),
    "geometric: a scale of zero": geometric(at("c.scale", lambda w: w[3].zero_())),
    "geometric: dilation": geometric(setting("b", "dilation", (2, 2))),
    "geometric: an offset of a dead unit": geometric(at("c.offset", lambda w: w[3].add_(1.0)), dead),
    "geometric: a weight of a module that does not run": geometric(
        at("spare.0.weight", lambda w: w[1].mul_(1.1))
    ),
    "geometric: masked column, another scale": geometric(at("c.scale", lambda w: w[4].mul_(1.05)), masked),
}


def prepared(case: Case) -> tuple[nn.Module, object]:
    """A network whose norms have seen some batches, and an example."""
    torch.manual_seed(0)
    example = case.example()
    net = case.network()
    x = example[0] if isinstance(example, tuple) else example
    with torch.no_grad():
        for _ in range(3):
            net(*(example if isinstance(example, tuple) else (x,)))
    if isinstance(example, tuple) and isinstance(example[1], list | dict):
        example[1].clear()
    return net.eval(), example


def verdict(case: Case) -> str:
    """ "passes", "caught: ...", or an error that is none of a conversion's."""
    net, example = prepared(case)
    try:
        with spoiling(case.tamper):
            found = CONVERSIONS[case.conversion](net, example)
    except ConversionError as error:
        return f"caught: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passes" if found.changed else "passes, but nothing is changed"

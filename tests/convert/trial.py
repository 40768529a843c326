"""Whether a converted network does what the original does, on other sizes than the example, in both modes.

    python tests/convert/trial.py --seed 0 --networks 400

tries six conversions of so many odd networks, prints how they ended, and fails if one is silently wrong.
"""

import argparse
import sys
import warnings
from collections import Counter
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.convert.copies import copied

SIZES = ((5, 3, 8, 8), (1, 3, 8, 8), (3, 3, 11, 9), (2, 3, 16, 12))


def chain(model, example):
    """Three conversions one after the other."""
    return fuse(to_geometric(to_crelu(model, example).model, example).model, example)


CONVERSIONS = {
    "expand": to_crelu,
    "merge": partial(to_crelu, mode="merge"),
    "geometric": to_geometric,
    "heavy ball": to_heavy_ball,
    "fuse": fuse,
    "chain": chain,
}


class HalvingDropouts(TorchFunctionMode):
    """Dropouts that halve everything: what they would drop depends on the number of channels."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in (F.dropout, F.dropout2d):
            return func(*args, **(kwargs or {}))
        given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | (kwargs or {})
        x = given["input"]
        if not given.get("training", True):
            return x
        return x.mul_(0.5) if given.get("inplace") else x * 0.5


def run(model, x, training):
    """Outputs, gradients of inputs and parameters, buffers and other answers of a network."""
    model = copied(model, share=True)
    if not training:
        model.eval()
    elif not model.training:
        model.train()
    x = x.clone().requires_grad_()
    torch.manual_seed(0)
    with HalvingDropouts():
        answer = model(x.clone())
    leaves = [v for v in _leaves(answer) if v is not None]
    outputs = [v for v in leaves if isinstance(v, Tensor)]
    total = sum((v * torch.linspace(-1, 2, v.numel()).view_as(v)).sum() for v in outputs if v.requires_grad)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(total, [x, *trained.values()], allow_unused=True)
    return {
        "outputs": outputs,
        "others": [v for v in leaves if not isinstance(v, Tensor)],
        "gradients": dict(zip(["input", *trained], gradients, strict=True)),
        "parameters": dict(model.named_parameters()),
        "buffers": dict(model.named_buffers()),
    }


def _leaves(answer):
    if is_dataclass(answer):
        return [getattr(answer, field.name) for field in fields(answer)]
    return tree_leaves(answer)


def close(a, b, tolerance, scale=None):
    """Whether two tensors, or None for zeros, are the same up to a part of the scale, NaN included."""
    if a is None or b is None:
        return all(v is None or not v.count_nonzero() for v in (a, b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    scale = size(a) if scale is None else scale
    return torch.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True)


def size(x):
    """The largest entry."""
    return 0.0 if x is None or not x.numel() else float(x.detach().double().nan_to_num(0, 0, 0).abs().max())


def faults(model, net, x, training, known=None):
    """What is wrong with a converted network on an input, in words; ``known`` keeps what the original computes."""
    known, key = {} if known is None else known, (tuple(x.shape), training)
    if key not in known:
        try:
            known[key] = run(model, x, training)
        except Exception:
            known[key] = None
    before = known[key]
    if before is None:
        return []  # the original does not take it
    try:
        after = run(net, x, training)
    except AssertionError as error:
        return [] if "was converted for sizes" in str(error) else [f"raises {error}"]
    except Exception as error:
        return [f"raises {type(error).__name__}: {error}"]
    tolerance = 1e-8 if training else 1e-10
    found = []
    if len(before["outputs"]) != len(after["outputs"]) or before["others"] != after["others"]:
        found.append("other outputs")
    elif not all(map(partial(close, tolerance=tolerance), before["outputs"], after["outputs"])):
        found.append("outputs differ")
    found += [f"gradient of {name}" for name in _same_layers(before, after) if not _same(before, after, name)]
    for name, value in before["buffers"].items():
        other = after["buffers"].get(name)
        if training and other is not None and other.shape == value.shape and not close(value, other, 1e-7):
            found.append(f"buffer {name}")
    return found


def _same(before, after, name):
    largest = max(map(size, before["gradients"].values()))
    return close(before["gradients"].get(name), after["gradients"].get(name), 1e-8, largest)


def _same_layers(before, after):
    """The input, and the parameters of layers that a conversion has left alone."""

    def layers(found):
        own = {}
        for name, value in found["parameters"].items():
            own.setdefault(name.rpartition(".")[0], {})[name] = value
        return own

    others = layers(after)
    yield "input"
    for layer, own in layers(before).items():
        other = others.get(layer, {})
        if own.keys() == other.keys() and all(torch.equal(v, other[n]) for n, v in own.items()):
            yield from own


def frozen_faults(model, net):
    """Parameters that are trained though frozen before, and those that have vanished with an unused module."""
    after = dict(net.named_parameters())
    found = [
        f"{n} thawed"
        for n, p in model.named_parameters()
        if n in after and after[n].requires_grad != p.requires_grad
    ]
    frozen = {n.rpartition(".")[0] for n, p in model.named_parameters() if not p.requires_grad}
    frozen -= {n.rpartition(".")[0] for n, p in model.named_parameters() if p.requires_grad}
    found += [f"{n} thawed" for n, p in after.items() if n.rpartition(".")[0] in frozen and p.requires_grad]
    return found + [
        f"{n} vanished" for n in model.state_dict() if ".spare." in n and n not in net.state_dict()
    ]


def trial(model, example, name, known=None):
    """How a conversion of a network ends: "refused: ...", "converted", or "wrong: ..."."""
    try:
        conversion = CONVERSIONS[name](model, example)
    except ConversionError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}"
    changed = any("filters less" in change.reason for change in conversion.changes)
    modes = (False,) if name in ("fuse", "chain") or (name == "merge" and changed) else (False, True)
    found = [] if name in ("fuse", "chain") else frozen_faults(model, conversion.model)
    for shape in SIZES:
        x = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        for training in modes:
            mode = "training" if training else "evaluation"
            wrong = faults(model, conversion.model, x, training, known)
            found += [f"{fault} at {shape} in {mode}" for fault in wrong]
    return f"wrong: {'; '.join(found[:3])}" if found else "converted"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", type=int, default=400)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    from odd import odd_network

    warnings.simplefilter("ignore")
    counts, wrong = Counter(), 0
    for done, seed in enumerate(range(options.seed, options.seed + options.networks), 1):
        known = {}
        model, example = odd_network(seed)
        for name in CONVERSIONS:
            ended = trial(model, example, name, known)
            status = ended.split(":")[0]
            counts[name, status] += 1
            if status == "wrong":
                wrong += 1
                print(seed, name, model.names, tuple(example.shape), ended, flush=True)
        if done % 20 == 0:
            print(f"{done} networks, {wrong} wrong", file=sys.stderr, flush=True)
    for (name, status), count in sorted(counts.items()):
        print(f"{name}: {status} {count}")
    print(f"{options.networks} networks, {sum(counts.values())} conversions, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())

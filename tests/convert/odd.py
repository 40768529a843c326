"""Odd networks at random, and whether a conversion of one does what the original does.

    python tests/convert/odd.py --seed 0 --networks 400 --extended

tries six conversions of each, prints how they ended, and fails if one is silently wrong: if outputs, gradients,
buffers or what modules keep differ on other inputs than the example, in either mode. A network is a few odd pieces, any
of which a careless conversion gets wrong. Extended ones also have masks, objects, half precision, targets and hooks.
"""

import argparse
import copy
import random
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.nn import AVR, CReLU, GeometricConv2d, MeanNorm

C = 6  # channels between pieces; every piece takes and returns (N, C, H, W)


def conv(inputs=C, outputs=C, size=3, **options):
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, **options)


def block(inputs=C, outputs=C):
    return nn.Sequential(conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(), conv(outputs, inputs))


class Piece(nn.Module):
    """A function of a block and the input; the block comes first, so that there is something to convert."""

    def __init__(self, function, **modules):
        super().__init__()
        self.block = block()
        for name, module in modules.items():
            setattr(self, name, module)
        self.function = function

    def forward(self, x):
        return self.function(self, self.block(x))


PIECES = {}


def piece(build):
    PIECES[build.__name__] = build
    return build


def simple(name, function, **modules):
    """A piece that is a function of itself and of the block's value; modules are given as factories."""
    PIECES[name] = lambda: Piece(function, **{key: make() for key, make in modules.items()})


def in_place_view(m, y):
    y[:, :3].relu_()
    return m.after(y)


def in_place_part(m, y):
    F.relu(y.narrow(1, 0, 3), inplace=True)
    return m.after(y)


def read_after_in_place(m, y):
    z = y.view(y.shape)
    w = F.relu(y, inplace=True)
    return m.after(w) + z


def in_place_sum(m, y):
    z = m.after(F.relu(y))
    z += y
    return m.last(F.relu(z)) + z


def set_item(m, y):
    y = y.relu()
    y[:, 0] = 1.0
    return m.after(y)


def odd_sizes_padded(m, y):
    if y.shape[-1] % 2:
        y = F.pad(y, (0, 1))
    return F.avg_pool2d(m.after(y.relu()), 2)


def norm_for_several(m, y):
    return m.after(F.relu(m.norm(y) if y.shape[0] > 1 else y))


def pooled_if_large(m, y):
    return F.avg_pool2d(m.after(y.relu()), 2) if y.shape[2] > 9 else m.after(y.relu())


def without_gradients(m, y):
    with torch.no_grad():
        z = m.after(y.relu()).relu()
    return m.last(z) + y


def averaged(m, y):
    if m.training:
        with torch.no_grad():
            m.mean.mul_(0.9).add_(0.1 * y.mean((0, 2, 3)))
    return m.after(F.relu(y - m.mean.view(-1, 1, 1)))


def dropped_in_place(m, y):
    z = F.dropout(y, 0.5, m.training, inplace=True)
    return m.after(y.relu()) + z


def drop_path(m, y):
    if not m.training:
        return m.after(y.relu())
    keep = y.new_empty((y.shape[0], 1, 1, 1)).bernoulli_(0.5)
    return m.after(y.relu()) * keep / 0.5


def constants(m, y):
    grid = torch.arange(y.shape[-1], dtype=y.dtype) * torch.tensor(0.1)
    ones = torch.ones(y.shape[0], 1, 1, 1, dtype=y.dtype)
    return m.after(y.relu() * torch.full((C, 1, 1), 2.0, dtype=y.dtype)) * ones + grid


def counted(m, y):
    m.calls += 1
    return m.after(y.relu()) * m.calls


def tokens(m, y):
    n, c, h, w = y.shape
    z = y.flatten(2).transpose(1, 2)
    return m.attention(z).transpose(1, 2).reshape(n, c, h, w)


def no_width(m, y):
    none = m.none(y.permute(0, 2, 3, 1)).relu().permute(0, 3, 1, 2)
    return m.after(torch.cat([y.relu(), none], 1))


def in_thread(function, x):
    """A function's value, computed by another thread with this thread's switch for gradients."""
    grad = torch.is_grad_enabled()

    def compute():
        with torch.set_grad_enabled(grad):
            return function(x)

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(compute).result()


def looped(modules, x):
    for module in modules:
        x = module(x)
    return x


class Residual(nn.Module):
    """x + f(x), rectified or not."""

    def __init__(self, rectified):
        super().__init__()
        self.body, self.norm, self.rectified = block(), nn.BatchNorm2d(C), rectified

    def forward(self, x):
        y = self.norm(self.body(x))
        y += x
        return F.relu(y, inplace=True) if self.rectified else y


class Gated(nn.Module):
    """A sum whose shortcut is scaled: no residual block."""

    def __init__(self):
        super().__init__()
        self.body = block()

    def forward(self, x):
        return self.body(x) + 0.5 * x


class Summed(nn.Module):
    """A sum that leaves out its input: no residual block."""

    def __init__(self):
        super().__init__()
        self.body, self.other = block(), conv()

    def forward(self, x):
        return self.body(x) + self.other(x)


def stage(kind):
    """Residual blocks of one shape in a row, with something else among them or not."""
    rectified = random.random() < 0.5
    blocks = [Residual(rectified) for _ in range(3)]
    if random.random() < 0.5:
        blocks.insert(random.randrange(4), nn.BatchNorm2d(C))
    return kind(blocks) if kind is nn.ModuleList else kind(*blocks)


def over_time(m, y):
    """The columns of an image one after the other, all by the same layers."""
    state = y.new_zeros(y.shape[0], C)
    states = []
    for column in y.mean(2).unbind(2):
        state = m.out(F.relu(m.new(column) + m.old(state)))
        states.append(state)
    return y + torch.stack(states, 2).unsqueeze(2)


def by_gru(m, y):
    return y + m.gru(m.after(y.relu()).mean(2).transpose(1, 2))[0].transpose(1, 2).unsqueeze(2)


def skipped_at_random(m, y):
    return y if m.training and random.random() < 0.5 else y + m.after(y.relu())


simple("plain", lambda m, y: m.after(y.relu()), after=conv)
simple("clamped", lambda m, y: m.after(y.clamp(min=0)), after=conv)
simple("residual", lambda m, y: m.after(F.relu(y)) + y, after=block)
simple("in_place_view", in_place_view, after=conv)
simple("in_place_part", in_place_part, after=conv)
simple("read_after_in_place", read_after_in_place, after=conv)
simple("in_place_sum", in_place_sum, after=conv, last=conv)
simple("set_item", set_item, after=conv)
simple("odd_sizes_padded", odd_sizes_padded, after=conv)
simple("norm_for_several", norm_for_several, after=conv, norm=lambda: nn.BatchNorm2d(C))
simple("pooled_if_large", pooled_if_large, after=conv)
simple("without_gradients", without_gradients, after=conv, last=conv)
simple("dropped_in_place", dropped_in_place, after=conv)
simple("drop_path", drop_path, after=conv)
simple("constants", constants, after=conv)
simple("sizes_as_numbers", lambda m, y: m.after(y.relu()) * len(y) / int(y.shape[2]) + y.shape[3], after=conv)
simple("boolean_sum", lambda m, y: m.after(y.relu()) * ((y > 0) + (m.after(y) > 0)), after=conv)
simple("integer_sum", lambda m, y: m.after(y.relu()) * (y.long() + y.long().clamp(min=0)), after=conv)
simple("read_as_tensor", lambda m, y: m.after(y.relu()) + F.conv2d(y, m.after.weight, padding=1), after=conv)
simple("weight_penalty", lambda m, y: m.after(y.relu()) * m.after.weight.abs().mean(), after=conv)
simple("data_decides", lambda m, y: m.after(y.relu()) if y.sum() > 0 else m.after(y), after=conv)
simple("trained_otherwise", lambda m, y: m.after(y.relu()) if m.training else m.after(y), after=conv)
simple("no_values", lambda m, y: m.after(y.relu()) + y.log().nan_to_num(0, 0, 0), after=conv)
simple("not_a_number", lambda m, y: m.after(y.relu()) * (y.sum() * 0 / 0), after=conv)
simple("checkpointed", lambda m, y: checkpoint(m.after, y.relu(), use_reentrant=False), after=conv)
simple(
    "resized", lambda m, y: F.interpolate(m.after(F.max_pool2d(y.relu(), 2)), size=y.shape[2:]), after=conv
)
simple("concatenated", lambda m, y: m.after(torch.cat([y.relu(), y], 1)), after=lambda: conv(2 * C))
simple("detached", lambda m, y: m.after(y.relu().detach()) + y, after=conv)
simple("fourier", lambda m, y: m.after(torch.fft.fft(y.relu()).abs()), after=conv)
simple("abs_and_crelu", lambda m, y: m.after(m.crelu(y)), crelu=CReLU, after=lambda: conv(2 * C))
simple("absolute", lambda m, y: m.after(m.abs(y)), abs=AVR, after=conv)
simple("centred", lambda m, y: m.after(m.mean(y.relu())), mean=lambda: MeanNorm(C), after=conv)
simple(
    "geometric", lambda m, y: m.after(y.relu()), after=lambda: GeometricConv2d(C, C, 1, activation=nn.ReLU())
)
simple("group_norm", lambda m, y: m.after(m.norm(y).relu()), norm=lambda: nn.GroupNorm(2, C), after=conv)
simple("instance_norm", lambda m, y: m.after(m.norm(y).relu()), norm=lambda: nn.InstanceNorm2d(C), after=conv)
simple("grouped", lambda m, y: m.after(y.relu()), after=lambda: conv(groups=2))
simple("called_twice", lambda m, y: m.after(m.after(y.relu()).relu()), after=conv)
simple("no_width", no_width, none=lambda: nn.Linear(C, 0), after=conv)
simple("attention", tokens, attention=lambda: nn.TransformerEncoderLayer(C, 2, 8, batch_first=True))
simple("unused", lambda m, y: m.after(y.relu()), after=conv, spare=block)
simple("over_time", over_time, **dict.fromkeys(("new", "old", "out"), lambda: nn.Linear(C, C)))
simple("recurrent", by_gru, after=conv, gru=lambda: nn.GRU(C, C, batch_first=True))
simple("skipped_at_random", skipped_at_random, after=conv)
simple("leaky", lambda m, y: m.after(F.avg_pool2d(m.act(y), 2)), act=lambda: nn.LeakyReLU(0.2), after=conv)
simple("leaky_pooled", lambda m, y: m.after(F.max_pool2d(m.act(y), 2)), act=nn.LeakyReLU, after=conv)
simple("slopes", lambda m, y: m.after(m.act(y)), act=lambda: nn.PReLU(C), after=conv)
simple("clipped", lambda m, y: m.after(y.clamp(0, 1e4)), after=conv)
simple("maximum", lambda m, y: m.after(torch.maximum(y, y.new_zeros(()))), after=conv)
simple("depthwise", lambda m, y: m.last(m.after(y.relu())), after=lambda: conv(groups=C), last=conv)
simple(
    "depthwise_multiplied",
    lambda m, y: m.last(m.norm(m.after(m.relu(y))).relu()),
    after=lambda: conv(outputs=2 * C, groups=C),
    norm=lambda: nn.BatchNorm2d(2 * C),
    relu=nn.ReLU,
    last=lambda: conv(2 * C, groups=2),
)
simple("sliced", lambda m, y: m.after(y.relu()[:, :3]) + m.last(y), after=lambda: conv(3), last=conv)
simple("shuffled", lambda m, y: m.after(F.channel_shuffle(y.relu(), 2)), after=conv)
simple("rolled", lambda m, y: m.after(y.relu().roll(1, 3)) + m.last(y.relu().flip(1)), after=conv, last=conv)
simple("dropped_channels", lambda m, y: m.after(F.dropout2d(y.relu(), 0.5, m.training)), after=conv)
simple(
    "gated", lambda m, y: m.after(y.relu() * m.gate(y.mean((2, 3), True)).sigmoid()), gate=conv, after=conv
)
simple("rows_as_batch", lambda m, y: m.after(y.relu().flatten(0, 1).view_as(y)), after=conv)
simple("twice_rectified", lambda m, y: m.after(m.relu(y).relu().clamp(min=0)), relu=nn.ReLU, after=conv)
simple("threaded", lambda m, y: in_thread(m.after, y.relu()), after=conv)
simple("iterated", lambda m, y: looped(m.blocks, y), blocks=lambda: stage(nn.ModuleList))
simple("called_and_iterated", lambda m, y: looped(m.blocks, m.blocks(y)), blocks=lambda: stage(nn.Sequential))
simple("stage", lambda m, y: m.blocks(y), blocks=lambda: stage(nn.Sequential))
simple("stage_called_twice", lambda m, y: m.blocks(m.blocks(y).relu()), blocks=lambda: stage(nn.Sequential))
simple(
    "stage_of_other_sums", lambda m, y: m.blocks(y), blocks=lambda: nn.Sequential(Gated(), Gated(), Summed())
)
simple("stage_without_sums", lambda m, y: m.blocks(y), blocks=lambda: nn.Sequential(block(), block()))
simple("noise", lambda m, y: m.after(y.relu()) + torch.rand(1, dtype=y.dtype), after=conv)


@piece
def counts_calls():
    made = Piece(counted, after=conv())
    made.calls = 0
    return made


@piece
def running_mean():
    made = Piece(averaged, after=conv())
    made.register_buffer("mean", torch.zeros(C, dtype=torch.float64))
    return made


@piece
def frozen():
    made = Piece(
        lambda m, y: m.last(m.norm(m.after(y.relu())).relu()),
        after=conv(),
        norm=nn.BatchNorm2d(C),
        last=conv(),
    )
    for module in random.sample([made.after, made.norm, made.last, made.block], 2):
        module.requires_grad_(False)
    return made


@piece
def frozen_bias():
    made = Piece(lambda m, y: m.after(y.relu()), after=conv())
    made.after.bias.requires_grad_(False)
    return made


class StaysInEvaluation(Piece):
    """Its norm never leaves evaluation."""

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


@piece
def own_train():
    return StaysInEvaluation(lambda m, y: m.after(m.norm(y).relu()), norm=nn.BatchNorm2d(C), after=conv())


@piece
def norm_in_evaluation():
    made = Piece(lambda m, y: m.after(m.norm(y).relu()), norm=nn.BatchNorm2d(C), after=conv())
    made.norm.eval()
    return made


@piece
def tied():
    made = Piece(lambda m, y: m.last(m.after(y.relu()).relu()), after=conv(), last=conv())
    made.last.weight = made.after.weight
    return made


@piece
def opposite_pairs():
    made = Piece(lambda m, y: m.last(m.after(y.relu()).relu()), after=conv(), last=conv())
    with torch.no_grad():
        made.after.weight[3:] = -made.after.weight[:3]
        made.after.bias[3:] = -made.after.bias[:3]
    return made


@piece
def weight_normed():
    return Piece(lambda m, y: m.after(y.relu()), after=parametrizations.weight_norm(conv()))


@piece
def symmetric():
    class Symmetric(nn.Module):
        def forward(self, w):
            return (w + w.flip(-1)) / 2

    made = Piece(lambda m, y: m.after(y.relu()), after=conv())
    parametrize.register_parametrization(made.after, "weight", Symmetric())
    return made


@piece
def hooked():
    """A hook that does nothing unless values are large, on any module."""
    made = Piece(lambda m, y: m.after(m.relu(y)), after=conv(), relu=nn.ReLU())
    module = random.choice([made.after, made.relu, made.block, made.block[0], made.block[1], made.block[2]])
    module.register_forward_hook(lambda _, args, y: y.clamp(max=3.0))
    return made


@piece
def hooked_before():
    made = Piece(lambda m, y: m.after(m.relu(y)), after=conv(), relu=nn.ReLU())
    random.choice([made.after, made.relu, made.block]).register_forward_pre_hook(
        lambda _, args: (args[0].clamp(max=3.0),)
    )
    return made


@piece
def hooked_backward():
    made = Piece(lambda m, y: m.after(m.relu(y)), after=conv(), relu=nn.ReLU())
    module = random.choice([made.after, made.block])
    module.register_full_backward_hook(lambda _, before, after: (2 * before[0],))
    return made


@piece
def hooked_parameter():
    made = Piece(lambda m, y: m.after(y.relu()), after=conv())
    made.after.weight.register_hook(lambda g: 2 * g)
    return made


@piece
def other_forward():
    made = Piece(lambda m, y: m.after(y.relu()), after=conv())
    made.after.forward = _Twice(made.after)
    return made


class _Twice:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return 2 * type(self.layer).forward(self.layer, x)


@piece
def named_in():
    name = random.choice(["in", 'a"b', "class", "5-x"])
    return Piece(lambda m, y: m.parts[name](y.relu()), parts=nn.ModuleDict({name: conv()}))


# Pieces of extended networks


def masked(m, y):
    """-inf where values are large, as no example shows."""
    return m.after(m.relu(y.masked_fill(y > 6, -torch.inf)))


def width_scaled(when):
    """Divided by the root of the width: always, in one mode, or where no gradient is kept."""

    def function(m, y):
        with torch.set_grad_enabled(torch.is_grad_enabled() and when != "no_grad"):
            h = y.relu()
            if when in ("always", "no_grad") or m.training == (when == "training"):
                h = h * h.shape[1] ** -0.5
            return m.after(h)

    return function


def kept(m, y):
    m.kept = m.relu(y)
    return m.after(m.kept)


def viewed_product(m, y):
    h = y.mean((2, 3)).relu()
    return m.after(y) * (h.unsqueeze(1) @ h.unsqueeze(2)).view(-1, 1, 1, 1)


def writing(m, y):
    with torch.no_grad():
        m.after.weight.clamp_(-0.2, 0.2)
    return m.after(y.relu())


def of_sorted(m, y):
    return m.after(m.relu(y).sort(1).values)


EXTENDED = set(PIECES)
simple("masked", masked, relu=nn.ReLU, after=conv)
simple(
    "masked_where", lambda m, y: m.after(m.relu(torch.where(y > 6, -torch.inf, y))), relu=nn.ReLU, after=conv
)
for mode in ("always", "training", "evaluation", "no_grad"):
    simple(f"width_scaled_{mode}", width_scaled(mode), after=conv)
simple("kept", kept, relu=nn.ReLU, after=conv)
simple("viewed_product", viewed_product, after=conv)
simple("writing", writing, after=conv)
simple("sorted", of_sorted, relu=nn.ReLU, after=conv)
simple(
    "width_checked",
    lambda m, y: m.after(m.relu(y)) if m.relu(y).shape[1] == C else y,
    relu=nn.ReLU,
    after=conv,
)


@piece
def hook_sees():
    """A hook of the user's that looks at a rectified value."""
    made = Piece(lambda m, y: m.after(m.relu(y)), after=conv(), relu=nn.ReLU())
    made.relu.register_forward_hook(lambda module, args, y: setattr(module, "kept", y.detach()))
    return made


@piece
def hook_accumulated():
    made = Piece(lambda m, y: m.after(y.relu()), after=conv())
    made.after.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
    return made


@piece
def captured():
    """Weights that a penalty reaches through a list."""
    made = Piece(lambda m, y: m.after(y.relu()) + sum(p.square().sum() for p in m.captured), after=conv())
    made.captured = [made.after.weight, made.block[0].weight]
    return made


EXTENDED = sorted(set(PIECES) - EXTENDED)


@dataclass
class Answer:
    logits: Tensor
    states: Tensor


class Thing:
    """An object that is no container."""

    def __init__(self, x, y):
        self.inner = SimpleNamespace(logits=x, states=[y])


FIRST = torch.arange(5) == 0
OUTPUTS = {
    "tensor": lambda x, y: x,
    "tuple": lambda x, y: (x, y),
    "dictionary": lambda x, y: {"logits": x, "states": y},
    "dataclass": Answer,
    "integers": lambda x, y: (x, x.argmax(1), len(y)),
}
EXTENDED_OUTPUTS = OUTPUTS | {
    "namespace": lambda x, y: SimpleNamespace(logits=x, states=y),
    "distribution": lambda x, y: torch.distributions.Normal(x, 1.0, validate_args=False),
    "object": Thing,
    "masked": lambda x, y: x.masked_fill(FIRST, -1e9),
    "masked by infinity": lambda x, y: (x.masked_fill(FIRST, -torch.inf), y),
    "stamped": lambda x, y: torch.cat((x, 1e7 * y.detach().mean((1, 2, 3)).unsqueeze(1)), 1),
}


class Odd(nn.Module):
    """A stem, odd pieces, and a head."""

    def __init__(self, pieces, output):
        super().__init__()
        self.names, self.output = [*pieces, output], output
        self.stem = nn.Conv2d(3, C, 3, padding=1)
        self.pieces = nn.Sequential(*(PIECES[name]() for name in pieces))
        self.head = nn.Linear(C, 5)

    def forward(self, x):
        y = self.pieces(self.stem(x))
        return EXTENDED_OUTPUTS[self.output](self.head(F.adaptive_avg_pool2d(F.relu(y), 1).flatten(1)), y)

    def given(self, x):
        """What the network takes beside images, with them."""
        return (x,)


class Deciding(Odd):
    """Decides on the size itself, where no module can be kept as it is."""

    def forward(self, x):
        return super().forward(x) if x.shape[0] > 1 else super().forward(2 * x)


class Targeted(Odd):
    """Returns a loss in training, for which it needs targets; a head of its own or the width goes into that."""

    def __init__(self, pieces, output):
        super().__init__(pieces, "tuple")
        self.aux = nn.Conv2d(C, 1, 1) if random.random() < 0.5 else None
        self.names.append("targets")

    def forward(self, x, targets=None):
        logits, y = super().forward(x)
        if not self.training:
            return logits
        if targets is None:
            raise ValueError("in training, targets should be given")
        loss = F.cross_entropy(logits, targets)
        return loss + (y.relu().mean() if self.aux is None else self.aux(y.relu()).mean())

    def given(self, x):
        return x, torch.arange(len(x)) % 5


class Filling(Odd):
    """Puts what it computes into a list or a dictionary that it is given."""

    def __init__(self, pieces, output):
        super().__init__(pieces, output)
        self.kind = random.choice([list, dict])
        self.names.append(f"fills a {self.kind.__name__}")

    def forward(self, x, into):
        answer = super().forward(x)
        into.append(answer) if self.kind is list else into.update(answer=answer)

    def given(self, x):
        return x, self.kind()


def odd_network(seed, size=(2, 3), *, extended=False):
    """A network and an example for it by the seed, in float64 or, of extended ones, in half precision at times."""
    random.seed(seed)
    torch.manual_seed(seed)
    plain = sorted(set(PIECES) - set(EXTENDED))
    pieces = random.sample(plain, random.randint(*size))
    kind = Deciding if random.random() < 0.03 else Odd
    outputs, dtype, targets = OUTPUTS, torch.float64, True
    if extended:
        pieces = random.sample(EXTENDED, random.choice([1, 1, 2])) + random.sample(
            plain, random.choice([0, 1])
        )
        random.shuffle(pieces)
        kind = random.choice([Odd, Odd, Odd, Targeted, Filling])
        outputs, targets = EXTENDED_OUTPUTS, random.random() < 0.7
        dtype = random.choice([torch.float64, torch.float64, torch.float64, torch.bfloat16, torch.float16])
    model = kind(pieces, random.choice(sorted(outputs))).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)  # no unit lies on its kink where a branch is dropped
    if random.random() < 0.1:
        model.register_forward_hook(lambda _, args, y: y)
    example = torch.randn(random.choice([1, 2, 4]), 3, 8, 8, dtype=torch.float64).to(dtype)
    if extended:
        example = model.given(example) if targets or kind is Filling else example
    return model.to(dtype).train(random.random() < 0.5), example


# The trial


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


SLOPES = {"leaky", "leaky_pooled", "slopes"}


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


def duplicate(model, *, share):
    """A copy, with the same parameters or in float64, without what an earlier call has left in it."""
    memo = {id(p): p for p in model.parameters()} if share else {}
    memo |= {
        id(module.kept): None for module in model.modules() if isinstance(vars(module).get("kept"), Tensor)
    }
    made = copy.deepcopy(model, memo)
    return made if share else made.double()


def run(model, x, training):
    """Outputs, gradients of inputs and parameters, buffers and other answers of a network, in float64."""
    model = duplicate(model, share=is_double(model))
    if not training:
        model.eval()
    elif not model.training:
        model.train()
    x = x.clone().requires_grad_()
    torch.manual_seed(0)
    random.seed(0)
    given = model.given(x.clone()) if hasattr(model, "given") else (x.clone(),)
    with HalvingDropouts():
        answer = model(*given)
    leaves = [*leaves_of((answer, given[1:]))]
    outputs = [v for v in leaves if isinstance(v, Tensor)]
    total = sum((v * torch.linspace(-1, 2, v.numel()).view_as(v)).sum() for v in outputs if v.requires_grad)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(total, [x, *trained.values()], allow_unused=True)
    return {
        "outputs": outputs + [m.kept for m in model.modules() if isinstance(vars(m).get("kept"), Tensor)],
        "others": [v for v in leaves if not isinstance(v, Tensor)],
        "gradients": dict(zip(["input", *trained], gradients, strict=True)),
        "parameters": dict(model.named_parameters()),
        "buffers": dict(model.named_buffers()),
    }


def is_double(model):
    return all(p.dtype == torch.float64 for p in model.parameters())


def leaves_of(answer):
    """Everything in an answer that is no container, objects of any class included."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        for each in answer:
            yield from leaves_of(each)
    elif hasattr(answer, "__dict__") and not isinstance(answer, Tensor):
        yield from leaves_of(list(vars(answer).values()))
    elif answer is not None:
        yield answer


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


def faults(model, net, x, training, known=None, *, roughly=False):
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
    except Exception as error:
        return [f"raises {type(error).__name__}: {error}"]
    if roughly:
        return ["outputs differ"] * (not all(map(alike, before["outputs"], after["outputs"])))
    tolerance = 1e-8 if training else 1e-10
    found = []
    if len(before["outputs"]) != len(after["outputs"]) or before["others"] != after["others"]:
        found.append("other outputs")
    elif not all(map(partial(close_by_column, tolerance=tolerance), before["outputs"], after["outputs"])):
        found.append("outputs differ")
    found += [f"gradient of {name}" for name in _same_layers(before, after) if not _same(before, after, name)]
    for name, value in before["buffers"].items():
        other = after["buffers"].get(name)
        if training and other is not None and other.shape == value.shape and not close(value, other, 1e-7):
            found.append(f"buffer {name}")
    return found


def close_by_column(a, b, tolerance):
    """Whether two outputs are the same up to a part of each column's own size, or of the median column's."""
    if a.dim() != 2 or not a.is_floating_point() or a.shape != b.shape:
        return close(a, b, tolerance)
    median = sorted(map(size, a.unbind(1)))[a.shape[1] // 2]
    return all(
        close(x, y, tolerance, max(size(x), median)) for x, y in zip(a.unbind(1), b.unbind(1), strict=True)
    )


def alike(a, b):
    """Whether two outputs are the same up to what half precision makes of weights, but for a few entries."""
    if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
        return False
    a, b = (x.double()[a.isfinite()] for x in (a, b))
    return not a.numel() or bool((a - b).abs().median() <= 0.1 * a.abs().median() + 1e-3)


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


def captured_faults(net):
    """Parameters in lists of the user's that are no longer the network's."""
    own = set(net.parameters())
    return [
        f"a captured parameter of {name} is stale"
        for name, m in net.named_modules()
        if not set(getattr(m, "captured", ())) <= own
    ]


def trial(model, example, name, known=None):
    """How a conversion of a network ends: "refused: ...", "converted", or "wrong: ..."."""
    state = {key: value.clone() for key, value in model.state_dict().items()}
    try:
        conversion = CONVERSIONS[name](model, example)
    except ConversionError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}"
    changed = any("filters fewer" in change.reason for change in conversion.changes)
    modes = (False,) if name in ("fuse", "chain") or (name == "merge" and changed) else (False, True)
    if any(what.startswith("training") for what in conversion.unchecked):  # and the summary says so
        modes = (False,)
    plain = copy.deepcopy(model)  # hooks on gradients stay behind in any copy
    found = [] if name in ("fuse", "chain") else frozen_faults(model, conversion.model)
    found += captured_faults(conversion.model)
    if any(
        not torch.equal(value.nan_to_num(), state[key].nan_to_num())
        for key, value in model.state_dict().items()
    ):
        found.append("the original was changed")
    # A slope times a weight is rounded to half precision, as are directions and folded norms.
    rounded = changed or not SLOPES.isdisjoint(model.names) or name not in ("expand", "merge", "heavy ball")
    roughly = rounded and not is_double(model)
    for shape in SIZES:
        x = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        for training in modes:
            mode = "training" if training else "evaluation"
            wrong = faults(plain, conversion.model, x, training, known, roughly=roughly)
            found += [f"{fault} at {shape} in {mode}" for fault in wrong]
    return f"wrong: {'; '.join(found[:3])}" if found else "converted"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", type=int, default=400)
    parser.add_argument("--extended", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, wrong = Counter(), 0
    for done, seed in enumerate(range(options.seed, options.seed + options.networks), 1):
        for name in CONVERSIONS:
            model, example = odd_network(seed, extended=options.extended)
            ended = trial(model, example, name)
            status = ended.split(":")[0]
            counts[name, status] += 1
            if status == "wrong":
                wrong += 1
                print(seed, name, model.names, ended[:200], flush=True)
        if done % 20 == 0:
            print(f"{done} networks, {wrong} wrong", file=sys.stderr, flush=True)
    for (name, status), count in sorted(counts.items()):
        print(f"{name}: {status} {count}")
    print(f"{options.networks} networks, {sum(counts.values())} conversions, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())

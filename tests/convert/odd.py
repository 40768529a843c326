"""A generator of odd networks: each is a few odd pieces, any of which a careless conversion gets wrong."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

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


@dataclass
class Answer:
    logits: torch.Tensor
    states: torch.Tensor


OUTPUTS = {
    "tensor": lambda x, y: x,
    "tuple": lambda x, y: (x, y),
    "dictionary": lambda x, y: {"logits": x, "states": y},
    "dataclass": Answer,
    "integers": lambda x, y: (x, x.argmax(1), len(y)),
}


class Odd(nn.Module):
    """A stem, odd pieces, and a head."""

    def __init__(self, pieces, output):
        super().__init__()
        self.names, self.output = list(pieces), output
        self.stem = nn.Conv2d(3, C, 3, padding=1)
        self.pieces = nn.Sequential(*(PIECES[name]() for name in pieces))
        self.head = nn.Linear(C, 5)

    def forward(self, x):
        y = self.pieces(self.stem(x))
        return OUTPUTS[self.output](self.head(F.adaptive_avg_pool2d(F.relu(y), 1).flatten(1)), y)


class Deciding(Odd):
    """Decides on the size itself, where no module can be kept as it is."""

    def forward(self, x):
        return super().forward(x) if x.shape[0] > 1 else super().forward(2 * x)


def odd_network(seed, size=(2, 3)):
    """A network and an example for it, in float64, by the seed."""
    random.seed(seed)
    torch.manual_seed(seed)
    pieces = random.sample(sorted(PIECES), random.randint(*size))
    kind = Deciding if random.random() < 0.03 else Odd
    model = kind(pieces, random.choice(sorted(OUTPUTS))).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)  # no unit lies on its kink where a branch is dropped
    if random.random() < 0.1:
        model.register_forward_hook(lambda _, args, y: y)
    example = torch.randn(random.choice([1, 2, 4]), 3, 8, 8, dtype=torch.float64)
    return model.train(random.random() < 0.5), example

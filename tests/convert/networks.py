"""Small networks, each written in a way that a conversion must understand."""

import torch
import torch.nn.functional as F
from torch import nn


class Functional(nn.Module):
    """Functions and methods for everything: in place, clamped, dropped out, viewed."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc = (
            nn.Conv2d(3, 6, 3),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.Linear(8 * 9, 5),
        )

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x), inplace=True), 2)
        x = self.conv2(x).clamp(min=0)
        x = F.dropout(x, 0.3, training=self.training)
        return self.fc(x.view(x.size(0), -1))


class SharedReLU(nn.Module):
    """One in-place ReLU for all layers; the second one changes a value that is read again."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv3, self.relu, self.fc = nn.Conv2d(6, 6, 1), nn.ReLU(inplace=True), nn.Linear(6, 5)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(x))
        z = self.conv3(self.relu(y))
        x = self.relu(z + y)  # y has been rectified in place
        return self.fc(x.mean((2, 3)))


class ReLUBeforeNorm(nn.Module):
    """As in CREPE: ReLU, then batch norm, then pooling; channels last before the classifier."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.conv2 = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 2)
        self.bn2, self.fc = nn.BatchNorm2d(4), nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(self.bn1(F.relu(self.conv1(x))), 2)
        x = self.bn2(self.conv2(x).relu())
        return self.fc(x.permute(0, 2, 3, 1).reshape(-1, 16))


class Dense(nn.Module):
    """Concatenations and pre-activations."""

    def __init__(self):
        super().__init__()
        self.conv0, self.norms, self.convs = nn.Conv2d(3, 4, 3, padding=1), nn.ModuleList(), nn.ModuleList()
        for k in range(3):
            self.norms.append(nn.BatchNorm2d(4 + 4 * k))
            self.convs.append(nn.Conv2d(4 + 4 * k, 4, 3, padding=1, bias=False))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        values = [self.conv0(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            values.append(conv(F.relu(norm(torch.cat(values, 1)))))
        x = F.relu(torch.cat([values[0], *(F.relu(v) for v in values[1:])], 1))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Shuffled(nn.Module):
    """Grouped and depthwise convolutions, a channel shuffle, a split."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.depthwise, self.conv3 = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(4, 6, 1)
        self.up, self.fc = nn.ConvTranspose2d(6, 4, 2, groups=2), nn.Linear(4, 5)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        n, c, h, w = x.size()
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        a, b = F.relu(self.depthwise(x)).chunk(2, 1)
        x = F.relu(self.up(F.relu(self.conv3(a - b))))
        return self.fc(x.mean([2, 3]))


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class PreBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4, 1)
        self.bn2, self.conv2 = nn.BatchNorm2d(4), nn.Conv2d(4, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))


def residual(block=Block):
    """A residual network: torchvision's, or pre-activation bottlenecks."""
    blocks = [Block(6, 6, 1), Block(6, 6, 1), Block(6, 8, 2), Block(8, 8, 1), Block(8, 8, 1)]
    if block is PreBlock:
        blocks = [PreBlock(6), PreBlock(6), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 1), PreBlock(8)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)]
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), *blocks, *head)


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 5))


NETWORKS = {
    "functional": Functional,
    "shared ReLU": SharedReLU,
    "ReLU before norm": ReLUBeforeNorm,
    "dense": Dense,
    "shuffled": Shuffled,
    "residual": residual,
    "pre-activation": lambda: residual(PreBlock),
    "perceptron": perceptron,
}


def example(dtype=torch.float64):
    return torch.randn(4, 3, 8, 8, dtype=dtype)


def trained_a_little(model, dtype=torch.float64):
    """The network with statistics and shifts that differ from channel to channel."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for values in (module.running_mean, module.bias.data):
                nn.init.normal_(values)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight.data)
    return model.to(dtype).eval()

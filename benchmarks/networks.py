"""Published networks as users have them: ResNets of bottleneck blocks and DenseNets."""

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """A block of ResNet-50, as it is usually written."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        projection = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.skip = projection if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 4 x width, H', W')."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.skip(x)
        return self.relu(y)


def _stem() -> list[nn.Module]:
    norm, pool = nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)
    return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm, nn.ReLU(inplace=True), pool]


def resnet(*blocks: int) -> nn.Module:
    """ResNet-50 has 3, 4, 6 and 3 blocks, ResNet-152 has 3, 8, 36 and 3."""
    layers, inputs = _stem(), 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for i in range(count):
            layers.append(Bottleneck(inputs, width, 2 if i == 0 and stage > 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class DenseLayer(nn.Module):
    """A layer of a DenseNet: its input, and 32 new channels beside it."""

    def __init__(self, inputs: int, growth: int = 32) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C + growth, H, W)."""
        y = self.conv2(self.relu(self.norm2(self.conv1(self.relu(self.norm1(x))))))
        return torch.cat((x, y), 1)


def densenet(*layers: int) -> nn.Module:
    """DenseNet-121 has blocks of 6, 12, 24 and 16 layers, DenseNet-201 of 6, 12, 48 and 32."""
    modules, channels = _stem(), 64
    for block, count in enumerate(layers):
        if block > 0:
            modules += [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
            ]
            modules.append(nn.AvgPool2d(2))
            channels //= 2
        modules += [DenseLayer(channels + 32 * k) for k in range(count)]
        channels += 32 * count
    head = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*modules, *head, nn.Linear(channels, 1000))

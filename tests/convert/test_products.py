"""Products are counted wherever weights are: in modules, in functions, in recurrent layers and attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from relucid.convert.products import products
from relucid.convert.run import run
from relucid.nn import CReLU, GeometricLinear


class Called(nn.Module):
    """A function of the input and a weight."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.function(x, weight=self.weight)


image, sequence = torch.randn(2, 4, 5, 5), torch.randn(7, 2, 4)
lengths = pack_sequence([torch.randn(5, 4), torch.randn(3, 4)])
CASES = {
    "linear": (nn.Linear(5, 3), image, 2 * 4 * 5 * 5 * 3),
    "convolution": (nn.Conv2d(4, 6, 3), image, 2 * 6 * 3 * 3 * (4 * 3 * 3)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), image, 2 * 6 * 3 * 3 * (2 * 3 * 3)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3), image, 2 * 4 * 5 * 5 * (6 * 3 * 3)),
    "function": (Called(F.conv2d, 6, 4, 3, 3), image, 2 * 6 * 3 * 3 * (4 * 3 * 3)),
    "geometric": (GeometricLinear(5, 3, activation=CReLU()), image, 2 * 4 * 5 * 5 * 3),
    "rnn": (nn.RNN(4, 3), sequence, 14 * 3 * (4 + 3)),
    "projected": (nn.LSTM(4, 6, proj_size=2), sequence, 14 * (24 * (4 + 2) + 2 * 6)),
    "one sequence": (nn.GRU(4, 3), sequence[:, 0], 7 * 9 * (4 + 3)),
    "packed": (nn.LSTM(4, 3), lengths, 8 * 12 * (4 + 3)),
    "cell": (nn.LSTMCell(4, 3), sequence[0], 2 * 12 * (4 + 3)),
    "attention": (
        nn.MultiheadAttention(4, 2),
        (sequence, sequence[:3], sequence[:3]),
        2 * (7 + 3 + 3 + 7) * 16,
    ),
    "no weights": (nn.ReLU(), image, 0),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("model, example, expected", CASES.values(), ids=CASES)
@pytest.mark.parametrize("training", [False, True])
def test_products_are_counted(model, example, expected, training):
    example = (example,) if model is CASES["packed"][0] else example
    assert run(model, example, training).multiply_adds == expected


def test_arguments_may_have_names():
    x, weight = torch.randn(2, 4, 5), torch.randn(4, 6, 3)
    y = F.conv_transpose1d(x, weight)
    assert products(F.conv_transpose1d, (), {"input": x, "weight": weight}, y) == 2 * 4 * 5 * 6 * 3

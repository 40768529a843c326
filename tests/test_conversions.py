import subprocess
import sys

import pytest
import torch
from torch import nn

from relucid.conversions import CONVERSIONS


@pytest.mark.parametrize("name", CONVERSIONS)
def test_every_name_is_a_conversion(name):
    net, example = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval(), torch.randn(8, 4)
    if name == "heavy-ball":  # for residual networks
        from relucid.models import create

        net, example = create("resnet20", num_classes=2, width=0.25).eval(), torch.randn(2, 3, 8, 8)
    options = {"tolerance": 1.0} if name == "merge" else {}
    converted = CONVERSIONS[name].call(**options)(net, example)
    assert isinstance(converted.model, type(net))


def test_names_do_not_wait_for_torch():
    code = "import sys, relucid.conversions; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

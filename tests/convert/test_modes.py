"""A network that computes more in one mode than in the other is converted, and does in each mode what it did."""

import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.convert import ConversionError, fuse, load, save, to_crelu, to_geometric, to_heavy_ball
from relucid.nn import CReLU

from .trial import faults

capture_module = sys.modules["relucid.convert.capture"]  # the function has the same name


class Outputs(NamedTuple):
    logits: Tensor
    aux: Tensor


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 4)


class Auxiliary(Body):
    """As GoogLeNet: a second head in training, between the layers of the network, and a named tuple then."""

    def __init__(self):
        super().__init__()
        self.aux = nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.aux_fc = nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        aux = None
        if self.training:
            aux = F.dropout(self.aux(x).mean((2, 3)), 0.5, self.training)
            aux = self.aux_fc(aux) * torch.tensor(0.3)
        x = F.dropout(F.relu(self.bn2(self.conv2(x)) + x), 0.2, self.training)
        x = self.fc(x.mean((2, 3))) + torch.tensor(1.0)
        return Outputs(x, aux) if self.training else x


class Probabilities(Body):
    """A softmax in evaluation only."""

    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax(1)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.fc(F.relu(self.bn2(self.conv2(x)) + x).mean((2, 3)))
        return x if self.training else {"probabilities": self.softmax(x), "classes": x.argmax(1)}


class Inside(nn.Module):
    """The same inside of another network, which takes the tuple apart."""

    def __init__(self):
        super().__init__()
        self.body, self.last = Auxiliary(), nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x) if self.training else self.body(x) + 1


NETWORKS = {"auxiliary head": Auxiliary, "softmax": Probabilities, "inside": Inside}
EXAMPLE = torch.randn(2, 3, 8, 8, dtype=torch.float64)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, to_heavy_ball])
def test_each_mode_computes_what_it_did(network, conversion):
    model = NETWORKS[network]().double()
    net = conversion(model, EXAMPLE).model
    for shape in (5, 3, 8, 8), (3, 3, 11, 9):
        x = torch.randn(shape, dtype=torch.float64)
        for training in (False, True):
            assert faults(model, net, x, training) == []
    for training in (False, True):
        assert type(net.train(training)(EXAMPLE)) is type(model.train(training)(EXAMPLE))


def test_layers_of_the_head_for_training_read_new_channels_too():
    conversion = to_crelu(Auxiliary().double(), EXAMPLE)
    assert conversion.model.get_submodule("aux.0").in_channels == 12
    assert isinstance(conversion.model.get_submodule("aux.2"), CReLU)


def test_conversions_follow_each_other_and_fuse_leaves_out_what_only_training_needs():
    model = Auxiliary().double()
    net = to_heavy_ball(to_crelu(model, EXAMPLE).model, EXAMPLE).model
    for training in (False, True):
        assert faults(model, net, torch.randn(5, 3, 8, 8).double(), training) == []
    fused = fuse(net, EXAMPLE).model
    assert faults(model, fused, torch.randn(5, 3, 8, 8).double(), training=False) == []
    assert not any(str(node.target).startswith(("aux", "by_mode")) for node in fused.graph.nodes)


def test_both_modes_are_saved(tmp_path):
    model = Probabilities().double()
    save(to_crelu(model, EXAMPLE), tmp_path)
    net = load(tmp_path).model
    for training in (False, True):
        assert faults(model, net, torch.randn(5, 3, 8, 8).double(), training) == []


def test_an_output_of_a_class_that_could_not_be_loaded_is_not_saved(tmp_path):
    with pytest.raises(ConversionError, match="it calls Outputs, which is not a function of torch's"):
        save(to_crelu(Auxiliary().double(), EXAMPLE), tmp_path)


class Counting(Body):
    """A buffer that only training reads, and changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        if self.training:
            self.seen += x.sum()
        return self.fc(F.relu(self.conv1(x)).mean((2, 3)))


class Twice(Body):
    """The same weights in another place."""

    def forward(self, x):
        x = F.relu(self.conv1(x))
        return self.fc((self.conv2(x) if self.training else self.conv2(x.flip(2))).mean((2, 3)))


class Overwritten(Body):
    """A value that training changes in place."""

    def forward(self, x):
        x = self.conv1(x)
        if self.training:
            x.view(-1).mul_(2)
        return self.fc(F.relu(x).mean((2, 3)))


@pytest.mark.parametrize("network", [Counting, Twice, Overwritten])
def test_what_would_have_an_effect_in_the_other_mode_is_refused(network):
    with pytest.raises(ConversionError, match=r"in training|assigns to its buffer seen"):
        to_crelu(network().double(), EXAMPLE)


@pytest.mark.parametrize("network", [Counting, Twice, Overwritten])
def test_inside_of_another_network_it_is_kept_as_it_is(network):
    model = nn.Sequential(network(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    net = to_crelu(model, EXAMPLE).model
    assert isinstance(net[0], network)
    for training in (False, True):
        assert faults(model, net, torch.randn(5, 3, 8, 8).double(), training) == []


def plain():
    layers = (nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.5), nn.ReLU(), nn.Conv2d(6, 4, 3))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class OwnMode(Body):
    """Its mode is a property of its own."""

    @property
    def training(self):
        return self.__dict__["mode"]

    @training.setter
    def training(self, value):
        self.__dict__["mode"] = value

    def forward(self, x):
        x = self.fc(F.relu(self.conv1(x)).mean((2, 3)))
        return 2 * x if self.training else x


def modes_traced(model, monkeypatch):
    modes, trace = [], capture_module._trace
    monkeypatch.setattr(capture_module, "_trace", lambda m, x, t, k: modes.append(t) or trace(m, x, t, k))
    to_crelu(model, EXAMPLE)
    return set(modes)


@pytest.mark.parametrize(
    "network, read", [(Auxiliary, True), (OwnMode, True), (Inside, True), (plain, False)]
)
def test_is_traced_in_training_only_if_it_reads_its_mode(network, read, monkeypatch):
    assert modes_traced(network().double(), monkeypatch) == ({False, True} if read else {False})
    assert "training" not in vars(nn.Module)


def test_a_mode_that_is_a_property_is_followed():
    model = OwnMode().double()
    net = to_crelu(model, EXAMPLE).model
    for training in (False, True):
        assert faults(model, net, torch.randn(5, 3, 8, 8).double(), training) == []


def test_threads_convert_at_the_same_time():
    models = [network().double() for network in (Auxiliary, plain, Probabilities, plain)]
    with ThreadPoolExecutor(4) as pool:
        nets = [each.model for each in pool.map(lambda model: to_crelu(model, EXAMPLE), models)]
    for model, net in zip(models, nets, strict=True):
        for training in (False, True):
            assert faults(model, net, torch.randn(5, 3, 8, 8).double(), training) == []


class AsItsLayer(Body):
    """It asks a layer for the mode, for a dropout that no check of outputs could see."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = F.relu(self.conv1(x)).flatten(2)
        p = self.drop.p if self.drop.training else 0.0
        return self.fc(F.scaled_dot_product_attention(x, x, x, dropout_p=p).mean(2))


def test_the_mode_of_a_layer_is_followed():
    net = to_crelu(AsItsLayer().double(), EXAMPLE).model
    assert not torch.equal(net.train()(EXAMPLE), net(EXAMPLE))
    assert torch.equal(net.eval()(EXAMPLE), net(EXAMPLE))


class Later(Body):
    """It reads its mode from the second call on."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.fc(F.relu(self.conv1(x)).mean((2, 3)))
        return 2 * x if self.calls > 1 and self.training else x


def test_a_mode_that_is_read_later_is_not_overlooked():
    with pytest.raises(ConversionError):
        to_crelu(Later().double(), EXAMPLE)


class OwnEval(Body):
    def eval(self):
        return self.train()

    def forward(self, x):
        return self.fc(F.relu(self.conv1(x)).mean((2, 3)))


def test_a_method_that_changes_the_mode_is_kept_or_refused():
    with pytest.raises(ConversionError, match="OwnEval has an eval method of its own"):
        to_crelu(OwnEval().double(), EXAMPLE)
    net = nn.Sequential(OwnEval(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    (kept,) = [change.reason for change in to_crelu(net, EXAMPLE).changes if change.name == "0"]
    assert kept == "it has an eval method of its own, so it is called as it is"


def test_scripting_goes_on_in_another_thread():
    done, errors = threading.Event(), []

    def script():
        while not done.is_set():
            try:
                torch.jit.script(plain().eval())
            except Exception as error:
                errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        thread = threading.Thread(target=script)
        thread.start()
        try:
            for _ in range(5):
                to_crelu(plain().double(), EXAMPLE)
        finally:
            done.set()
            thread.join()
    assert errors == []


def test_the_network_can_be_differentiated_after_it_was_converted_in_between():
    layers = [m for _ in range(50) for m in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())]
    model, x = nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * 64, 2)), torch.randn(8, 3, 8, 8)
    loss = model(x).sum()
    before = [parameter._version for parameter in model.parameters()]
    to_geometric(model, x, layers="3")
    assert [parameter._version for parameter in model.parameters()] == before
    loss.backward()


class Announced(Body):
    """Methods of its own that do what nn.Module's do, as those of Hugging Face's models."""

    def train(self, mode=True):
        return super().train(mode)

    def eval(self):
        return self.train(False)

    def forward(self, x):
        return self.fc(F.relu(self.bn1(self.conv1(x))).mean((2, 3)))


class Merging(Announced):
    """In evaluation, its weights are others."""

    def train(self, mode=True):
        if mode != self.training:
            self.conv1.weight.data.mul_(0.5 if mode else 2.0)
        return super().train(mode)


def test_a_method_that_changes_the_mode_as_ever_is_no_obstacle():
    model = Announced().double()
    net = to_crelu(model, EXAMPLE).model
    for training in (False, True):
        assert faults(model, net, torch.randn(5, 3, 8, 8).double(), training) == []


def test_a_method_that_changes_weights_with_the_mode_is_refused_and_not_called_on_the_original():
    model = Merging().double()
    before = model.conv1.weight.clone()
    with pytest.raises(ConversionError, match="Merging has a train method of its own"):
        to_crelu(model, EXAMPLE)
    assert torch.equal(model.conv1.weight, before)

"""What comes back is your network: its class, its names, its hooks, and all that works with it."""

import copy
import io
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import ConversionError, fuse, load, restore, to_crelu, to_geometric, to_heavy_ball
from relucid.convert._recipe import RECIPE

from .networks import NETWORKS, example, residual, trained_a_little

CONVERSIONS = {"crelu": to_crelu, "geometric": to_geometric, "heavy ball": to_heavy_ball, "fuse": fuse}
every_conversion = pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm, self.relu = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(self.relu(self.norm(self.conv1(x))))


class Own(nn.Module):
    """A functional ReLU, a stage of residual blocks, a method of its own."""

    def __init__(self):
        super().__init__()
        self.stem, self.stage, self.head = (
            nn.Conv2d(3, 6, 3),
            nn.Sequential(Block(), Block()),
            nn.Linear(6, 5),
        )
        self.inner = nn.Conv2d(6, 6, 1)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))

    def features(self, x):
        return self.stage(self.inner(F.relu(self.stem(x))))


def converted(convert, dtype=torch.float32):
    model, x = Own().to(dtype).eval(), torch.randn(2, 3, 8, 8, dtype=dtype)
    return model, convert(model, x).model, x


def through_pickle(net):
    return pickle.loads(pickle.dumps(net))


def through_file(net):
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@every_conversion
def test_the_class_the_methods_and_the_original_stay(convert):
    model, net, x = converted(convert, torch.float64)
    assert type(net) is Own
    assert torch.allclose(net.features(x), model.features(x))
    assert not any("relucid" in type(m).__module__ for m in model.modules())


@every_conversion
@pytest.mark.parametrize("repeat", [copy.deepcopy, through_pickle, through_file])
def test_copies_and_files_hold_the_converted_network(convert, repeat):
    _, net, x = converted(convert)
    again = repeat(net)
    assert torch.equal(again(x), net(x))
    assert [type(m).__name__ for m in again.modules()] == [type(m).__name__ for m in net.modules()]
    again.head.weight.data.zero_()
    assert not torch.equal(again(x), net(x))


@pytest.mark.needs("safetensors")
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("convert", [to_crelu, to_geometric, fuse])
def test_a_saved_conversion_is_repeated_on_a_fresh_instance(network, convert, tmp_path):
    torch.manual_seed(0)
    model, x = trained_a_little(NETWORKS[network]()), example()
    conversion = convert(model, x)
    conversion.save(tmp_path)
    back = load(tmp_path, NETWORKS[network]().double().eval())
    assert torch.equal(back(x), conversion.model.eval()(x))
    assert list(back.state_dict()) == list(conversion.model.state_dict())
    # A second time, the weights alone are loaded.
    assert restore(back, conversion.model.state_dict()) is back
    assert torch.equal(back(x), conversion.model(x))


@pytest.mark.needs("safetensors")
def test_conversions_one_after_the_other_are_saved_together(tmp_path):
    _, first, x = converted(to_heavy_ball)
    last = to_geometric(to_crelu(first, x).model, x)
    last.save(tmp_path)
    assert torch.equal(load(tmp_path, Own().eval())(x), last.model(x))


@pytest.mark.needs("safetensors")
def test_what_does_not_fit_is_a_sentence_and_the_instance_stays_as_it_was(tmp_path):
    with pytest.raises(ValueError, match=r"has no weights\.safetensors of a conversion"):
        load(tmp_path, Own())
    to_crelu(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)).save(tmp_path)
    with pytest.raises(ConversionError, match="holds a converted Sequential: Own"):
        load(tmp_path, Own())
    other = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    before = repr(other)
    with pytest.raises(ConversionError, match="holds a converted Sequential"):
        load(tmp_path, other)
    assert repr(other) == before


@pytest.mark.parametrize("network", NETWORKS)
def test_to_crelu_keeps_the_names_of_all_parameters(network):
    model = NETWORKS[network]().double()
    net = to_crelu(model, example()).model
    assert [name for name, _ in net.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert [name for name in net.state_dict() if name != RECIPE] == list(model.state_dict())


@pytest.mark.slow
@every_conversion
def test_it_compiles(convert):
    _, net, x = converted(convert)
    assert torch.allclose(torch.compile(net, backend="aot_eager", fullgraph=True)(x), net(x), atol=1e-6)


@every_conversion
def test_it_exports(convert):
    _, net, x = converted(convert)
    assert torch.allclose(torch.export.export(net, (x,)).module()(x), net(x), atol=1e-6)


def test_it_trains_under_ddp(on_two_processes):
    apart = on_two_processes(
        """
        from torch.nn.parallel import DistributedDataParallel
        from relucid.convert import to_crelu
        from relucid.models import create
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
        net = to_crelu(create("resnet8", num_classes=3, width=0.25).double().eval(), x).model
        expected = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
        parallel = DistributedDataParallel(net)
        parallel(x[2 * rank : 2 * rank + 2]).square().mean().backward()
        found = [p.grad for p in net.parameters()]
        result = max(float((a - b).abs().max()) for a, b in zip(found, expected))
        """
    )
    assert max(apart) < 1e-12


@every_conversion
def test_hooks_stay_and_see_every_call(convert):
    model, x, seen = Own().eval(), torch.randn(2, 3, 8, 8), []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda m, args, y, name=name: seen.append(name))
        module.register_forward_pre_hook(lambda m, args, name=name: seen.append(f"before {name}"))
    model(x)
    expected = list(seen)
    net = convert(model, x).model
    seen.clear()
    net(x)
    assert seen == expected


@pytest.mark.parametrize("place", ["conv1", "norm", "relu"])
@every_conversion
def test_a_hook_that_acts_on_other_data_only_acts_as_before(convert, place):
    model, x = Own().double().eval(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    getattr(model.stage[0], place).register_forward_hook(lambda m, args, y: y.clamp(max=10.0))
    net = convert(model, 0.1 * x).model
    assert torch.allclose(net(100 * x), model(100 * x))
    assert getattr(net.stage[0], place)._forward_hooks


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
def test_a_hook_that_cannot_take_both_phases_keeps_the_relu():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model[1].register_forward_hook(lambda m, args, y: y * torch.arange(4))
    (reason,) = [c.reason for c in to_crelu(model, torch.randn(5, 3)).changes if c.name == "1"]
    assert "the converted network fails" in reason or "a value per channel" in reason


def test_threads_convert_at_the_same_time():
    nets, x = [None] * 4, torch.randn(5, 3)
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in nets]

    def convert(k):
        nets[k] = to_crelu(models[k], x).model

    threads = [threading.Thread(target=convert, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for net, model in zip(nets, models, strict=True):
        assert net[2].in_features == 8
        torch.testing.assert_close(net(x), model(x))


@pytest.mark.slow
def test_a_hugging_face_model_is_saved_with_its_operations(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    model, x = transformers.T5EncoderModel(config).eval(), {"input_ids": torch.randint(3, 90, (2, 7))}
    conversion = to_crelu(model, x)
    net = conversion.model
    assert type(net) is type(model)
    assert net.config.d_ff == 32
    expected = net(**x).last_hidden_state
    conversion.save(tmp_path / "ours")
    back = load(tmp_path / "ours", transformers.T5EncoderModel(config).eval())
    assert torch.equal(back(**x).last_hidden_state, expected)
    net.save_pretrained(tmp_path / "theirs")  # the weights; their loader knows the old shapes only
    with pytest.raises(RuntimeError, match=r"(?i)mismatch"):
        transformers.T5EncoderModel.from_pretrained(tmp_path / "theirs")


def test_a_network_converted_in_inference_mode_can_be_trained():
    net = residual()
    with torch.inference_mode():
        x = torch.randn(2, 3, 8, 8)
        nets = [convert(net, x).model for convert in CONVERSIONS.values()]
    for each in nets:
        each(torch.randn(2, 3, 8, 8)).sum().backward()

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.models import create

BLOCKS = {"resnet18": (2, (2, 2, 2, 2)), "resnet34": (2, (3, 4, 6, 3)), "resnet50": (3, (3, 4, 6, 3))}


def torchvision_keys(convolutions, blocks):
    """The keys of torchvision's published weights, in their order."""

    def norm(name):
        return [
            f"{name}.{part}"
            for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        ]

    keys = ["conv1.weight", *norm("bn1")]
    for stage, count in enumerate(blocks, start=1):
        for k in range(count):
            block = f"layer{stage}.{k}"
            for c in range(1, convolutions + 1):
                keys += [f"{block}.conv{c}.weight", *norm(f"{block}.bn{c}")]
            if k == 0 and (stage > 1 or convolutions == 3):
                keys += [f"{block}.downsample.0.weight", *norm(f"{block}.downsample.1")]
    return [*keys, "fc.weight", "fc.bias"]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("propagation", ["residual", "heavy_ball"])
def test_weights_have_the_names_of_torchvisions(name, propagation):
    keys = list(create(name, propagation=propagation, num_classes=10, width=0.02).state_dict())
    assert keys == torchvision_keys(*BLOCKS[name])


def reference(net, x, propagation, convolutions=2):
    """He's network, or HB-Net (structure 6.1), in evaluation, from its weights alone."""
    weights = net.state_dict()

    def unit(x, conv, norm, stride, padding):
        x = F.conv2d(x, weights[f"{conv}.weight"], None, stride, padding)
        mean, var = weights[f"{norm}.running_mean"], weights[f"{norm}.running_var"]
        return F.batch_norm(x, mean, var, weights[f"{norm}.weight"], weights[f"{norm}.bias"])

    def branch(x, block, stride):
        if convolutions == 2:
            strides, paddings = (stride, 1), (1, 1)
        else:
            strides, paddings = (1, stride, 1), (0, 1, 0)
        for c, (s, p) in enumerate(zip(strides, paddings, strict=True), start=1):
            x = unit(x.relu() if c > 1 else x, f"{block}.conv{c}", f"{block}.bn{c}", s, p)
        return x

    big = "layer4.0.conv1.weight" in weights
    x = unit(x, "conv1", "bn1", *((2, 3) if big else (1, 1))).relu()
    if big:
        x = F.max_pool2d(x, 3, 2, 1)
    after = torch.relu if propagation == "residual" else (lambda x: x)
    for stage in range(1, 5 if big else 4):
        previous, k = 0, 0
        while f"layer{stage}.{k}.conv1.weight" in weights:
            block, stride = f"layer{stage}.{k}", 2 if k == 0 and stage > 1 else 1
            t = branch(x, block, stride)
            if f"{block}.downsample.0.weight" in weights:
                x = after(t + unit(x, f"{block}.downsample.0", f"{block}.downsample.1", stride, 0))
            elif stride == 2:
                half = x[:, :, ::2, ::2]
                x = after(
                    t + torch.cat((half, half.new_zeros(len(x), t.shape[1] - x.shape[1], *half.shape[2:])), 1)
                )
            else:
                previous, x = x, after(t + x - (0 if propagation == "residual" else previous))
            k += 1
    return F.linear(x.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])


@pytest.mark.parametrize(
    "name, size, convolutions", [("resnet26", 16, 2), ("resnet18", 64, 2), ("resnet50", 64, 3)]
)
@pytest.mark.parametrize("propagation", ["residual", "heavy_ball"])
def test_outputs_are_those_of_the_network_written_out(name, size, convolutions, propagation):
    net = create(name, propagation=propagation, num_classes=5, width=0.1).double()
    x = torch.randn(4, 3, size, size, dtype=torch.float64)
    net(x)  # running statistics other than 0 and 1
    net.eval()
    torch.testing.assert_close(net(x), reference(net, x, propagation, convolutions), rtol=1e-10, atol=1e-10)


def test_hbnet_is_resnet_with_one_coefficient_changed_and_no_relu_after_the_sum():
    resnet, hbnet = (
        create(f"structure/{name}56", num_classes=10, width=0.25) for name in ("resnet", "hbnet")
    )
    hbnet.load_state_dict(resnet.state_dict())
    control = create("resnet56", rectify="nowhere", num_classes=10, width=0.25)
    control.load_state_dict(resnet.state_dict())
    for stage in (1, 2, 3):
        ours, his = (net.get_submodule(f"layer{stage}") for net in (hbnet, control))
        assert (ours.after, his.after) == (None, None)
        assert isinstance(resnet.get_submodule(f"layer{stage}").after, nn.ReLU)
        assert ours.start == "zero"
        ours.rule = his.rule  # beta2 = 0 in place of -1
        ours._constants = {}
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(hbnet.eval()(x), control.eval()(x))


def test_a_plain_network_has_no_shortcuts():
    net = create("resnet20", propagation="plain", num_classes=10, width=0.25)
    assert not any("downsample" in name for name, _ in net.named_modules())
    assert [name for name, _ in net.layer2.named_children()] == ["0", "1", "2"]


def test_the_state_is_never_doubled_but_crelu_is_inside_every_transform():
    net = create("resnet20", activation="crelu", num_classes=10)
    assert (net.conv1.out_channels, net.layer1.get_submodule("0").conv2.in_channels) == (16, 32)
    assert isinstance(net.act1, nn.ReLU)
    assert isinstance(net.layer1.after, nn.ReLU)
    assert net.fc.in_features == 64


def gradients(net, x):
    torch.manual_seed(0)
    net.zero_grad()
    F.cross_entropy(net(x), torch.arange(len(x)) % 5).backward()
    return {name: p.grad for name, p in net.named_parameters()}


@pytest.mark.parametrize("name", ["resnet20", "resnet18"])
def test_reversible_training_has_the_gradients_of_ordinary_training(name):
    choices = {"propagation": "heavy_ball", "num_classes": 5, "width": 0.2}
    ordinary, reversible = create(name, **choices), create(name, reversible=True, **choices)
    reversible.load_state_dict(ordinary.state_dict())
    x = torch.randn(4, 3, 32, 32)
    for stage in (m for m in ordinary.modules() if hasattr(m, "state_dtype")):
        stage.state_dtype = torch.float64
    expected, found = gradients(ordinary, x), gradients(reversible, x)
    for key in expected:
        torch.testing.assert_close(found[key], expected[key], rtol=1e-5, atol=1e-5)


def kept_bytes(net, x):
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    parameters = {p.untyped_storage().data_ptr() for p in net.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(x)
    return sum(s.nbytes() for address, s in storages.items() if address not in parameters)


def test_reversible_training_keeps_as_much_at_any_depth():
    x = torch.randn(4, 3, 32, 32)
    shallow, deep, ordinary = (
        kept_bytes(create(name, propagation="heavy_ball", reversible=r, num_classes=5, width=0.5), x)
        for name, r in [("resnet20", True), ("resnet110", True), ("resnet110", False)]
    )
    assert deep <= 1.02 * shallow
    assert ordinary >= 5 * deep


def test_a_bottleneck_halves_the_image_in_its_3x3_convolution_or_as_he_et_al_print_in_its_1x1():
    strides = {}
    for strided in ("3x3", "1x1"):
        net = create("resnet50", num_classes=10, width=1 / 16, strided=strided)
        first = [net.get_submodule(f"layer{stage}.0") for stage in (2, 3, 4)]
        strides[strided] = {(block.conv1.stride, block.conv2.stride, block.conv3.stride) for block in first}
        assert net(torch.randn(2, 3, 64, 64)).shape == (2, 10)
    one, two = (1, 1), (2, 2)
    assert strides == {"3x3": {(one, two, one)}, "1x1": {(two, one, one)}}
    published = create("gmp/resnet50-bn", num_classes=10, width=1 / 16)
    assert published.get_submodule("layer2.0").conv1.stride == two

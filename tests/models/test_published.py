"""The published variants against the papers' tables, typed in once more."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.models import create, names
from relucid.nn import AVR, CReLU, GeometricConv2d, MeanNorm

# Rows of crelu Tables S2 to S13: kernel, inputs, filters, stride, padding, activation.
R, A, C = "ReLU", "AVR", "CReLU"


def convpool(widths, activation, last=R, classes=10):
    (a, b), phases = widths, 2 if activation == C else 1
    p, q = phases * a, phases * b
    return [
        *((3, 3, a, 1, 1, activation), (3, p, a, 1, 1, activation)),
        *((3, p, b, 1, 1, activation), (3, q, b, 1, 1, activation), (3, q, b, 1, 1, activation)),
        *((3, q, b, 1, 1, activation), (1, q, b, 1, 1, activation), (1, q, classes, 1, 0, last)),
    ]


def all_cnn(inputs, filters, activations):
    kernels = [(11, 4, 0), (1, 1, 0), (3, 2, 0), (5, 1, 2), (1, 1, 0), (3, 2, 0)]
    kernels += [(3, 1, 1), (1, 1, 0), (3, 2, 1), (3, 1, 1), (1, 1, 0), (1, 1, 0)]
    rows = zip(kernels, inputs, filters, activations, strict=True)
    return [(k, i, o, s, p, a) for (k, s, p), i, o, a in rows]


S8 = [96, 96, 96, 256, 256, 256, 384, 384, 384, 1024, 1024, 1000]
S12 = [48, 48, 48, 128, 128, 128, 192, 192, 192, 512, 512, 1000]
S13 = [48, 96, 96, 128, 256, 256, 192, 384, 384, 1024, 1024, 1000]
S8_IN = [3, 96, 96, 96, 256, 256, 256, 384, 384, 384, 1024, 1024]
S9_IN = [3, 192, 192, 192, 512, 256, 256, 384, 384, 384, 1024, 1024]
S10_IN = [3, 192, 192, 192, 512, 512, 512, 768, 384, 384, 1024, 1024]
S11_IN = [3, 192, 192, 192, 512, 512, 512, 768, 768, 768, 1024, 1024]
S12_IN = [3, 96, 96, 96, 256, 256, 256, 384, 384, 384, 1024, 512]  # conv11: 1024, not the printed 512
S13_IN = [3, 96, 96, 96, 256, 256, 256, 384, 384, 384, 1024, 1024]

# Table S3 as printed: conv3 has 48 filters.
PRINTED_HALF = convpool((48, 96), C)
PRINTED_HALF[2:4] = [(3, 96, 48, 1, 1, C), (3, 96, 96, 1, 1, C)]

CRELU_TABLES = {
    "crelu/convpool-baseline": (convpool((96, 192), R), 1_285_536),
    "crelu/convpool-double": (convpool((192, 384), R), 5_133_120),
    "crelu/convpool-avr": (convpool((96, 192), A, A), 1_285_536),
    "crelu/convpool-crelu": (convpool((96, 192), C), 2_568_480),
    "crelu/convpool-half": (convpool((48, 96), C), 643_728),
    "crelu/convpool-half-printed": (PRINTED_HALF, 519_312),
    "crelu/all_cnn_b-baseline": (all_cnn(S8_IN, S8, 12 * [R]), 9_367_584),
    "crelu/all_cnn_b-crelu-1-4": (all_cnn(S9_IN, S8, 4 * [C] + 8 * [R]), 10_139_680),
    "crelu/all_cnn_b-crelu-1-7": (all_cnn(S10_IN, S8, 7 * [C] + 5 * [R]), 11_761_696),
    "crelu/all_cnn_b-crelu-1-9": (all_cnn(S11_IN, S8, 9 * [C] + 3 * [R]), 16_627_744),
    "crelu/all_cnn_b-crelu-all": (all_cnn(S12_IN, S12, 10 * [C] + 2 * [R]), 4_683_792),
    "crelu/all_cnn_b-crelu-1,4,7": (all_cnn(S13_IN, S13, [C, R, R, C, R, R, C, *5 * [R]]), 8_600_592),
    "crelu/all_cnn_b-avr-1-4": (all_cnn(S8_IN, S8, 4 * [A] + 8 * [R]), 9_367_584),
    "crelu/all_cnn_b-avr-1-7": (all_cnn(S8_IN, S8, 7 * [A] + 5 * [R]), 9_367_584),
    "crelu/all_cnn_b-avr-1-9": (all_cnn(S8_IN, S8, 9 * [A] + 3 * [R]), 9_367_584),
}


def on_meta(name, num_classes, **choices):
    with torch.device("meta"):
        return create(name, num_classes=num_classes, **choices).eval()


def count(net):
    return sum(p.numel() for p in net.parameters())


def rows_of(net):
    """What the tables print, read off the modules in their order."""
    rows = []
    for layer in net.children():
        if isinstance(layer, nn.Conv2d):
            kernel, stride, padding = layer.kernel_size[0], layer.stride[0], layer.padding[0]
            rows.append([kernel, layer.in_channels, layer.out_channels, stride, padding])
        elif isinstance(layer, nn.ReLU | AVR | CReLU) and len(rows[-1]) == 5:
            rows[-1].append(type(layer).__name__)
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("name", CRELU_TABLES)
def test_layers_and_weights_of_convpool_and_all_cnn_are_those_of_the_tables(name):
    table, weights = CRELU_TABLES[name]
    net = on_meta(name, 1000 if "all_cnn" in name else 10)
    assert rows_of(net) == table
    assert sum(p.numel() for p in net.parameters() if p.dim() == 4) == weights  # biases come on top
    assert count(net) == weights + sum(row[2] for row in table)


@pytest.mark.parametrize("name, size", [("crelu/convpool-half", 10), ("crelu/all_cnn_b-crelu-all", 6)])
def test_average_pooling_has_the_printed_size(name, size):
    net = on_meta(name, 100)
    sizes = []
    net.avgpool.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[2:]))
    net(torch.zeros(1, *net.input_shape, device="meta"))
    assert sizes == [(size, size)]


# crelu Table S4: filters of conv1 to conv13.
VGG = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
DROPOUT = {1: 0.3, 3: 0.4, 5: 0.4, 6: 0.4, 8: 0.4, 9: 0.4, 11: 0.4, 12: 0.4, 13: 0.5, 14: 0.5}


@pytest.mark.parametrize(
    "name, replaced",
    [
        ("crelu/vgg16-avr-conv1", [1]),
        ("crelu/vgg16-avr-conv1,3", [1, 3]),
        ("crelu/vgg16-avr-conv1,3,5", [1, 3, 5]),
        ("crelu/vgg16-avr-all", range(1, 14)),
    ],
)
def test_avr_in_vgg_replaces_relu_and_nothing_else(name, replaced):
    baseline, net = on_meta("crelu/vgg16-baseline", 10), on_meta(name, 10)
    activations = [row[-1] for row in rows_of(net)]
    assert activations == [A if k in replaced else R for k in range(1, 14)]
    assert [row[:-1] for row in rows_of(net)] == [row[:-1] for row in rows_of(baseline)]
    assert list(net.state_dict()) == list(baseline.state_dict())
    assert list(dict(net.named_children())) == list(dict(baseline.named_children()))


@pytest.mark.parametrize(
    "name, halved, dropout",
    [
        ("crelu/vgg16-baseline", [], {}),
        ("crelu/vgg16-conv2", [2], {}),
        ("crelu/vgg16-conv4", [4], {}),
        ("crelu/vgg16-conv1", [1], {1: 0.1}),
        ("crelu/vgg16-conv1,3", [1, 3], {1: 0.1, 3: 0.2}),
        ("crelu/vgg16-conv1,3,5", [1, 3, 5], {1: 0.1, 3: 0.2, 5: 0.2, 6: 0.2}),
    ],
)
def test_vgg_is_that_of_tables_s4_to_s7(name, halved, dropout):
    net = on_meta(name, 10)
    filters = [f // 2 if k in halved else f for k, f in enumerate(VGG, start=1)]
    activations = [C if k in halved else R for k in range(1, 14)]
    inputs = [3, *VGG[:-1]]  # half the filters and CReLU hand on as many channels
    expected = [(3, i, o, 1, 1, a) for i, o, a in zip(inputs, filters, activations, strict=True)]
    assert rows_of(net) == expected
    modules = dict(net.named_children())
    assert {k for k in range(1, 15) if f"bn{k}" not in modules} == set(halved)
    found = {int(key.removeprefix("dropout")): m.p for key, m in modules.items() if isinstance(m, nn.Dropout)}
    assert found == {**DROPOUT, **dropout}
    pools = [list(modules)[i - 1] for i, m in enumerate(modules.values()) if isinstance(m, nn.MaxPool2d)]
    assert pools == ["act2", "act4", "act7", "act10", "act13"]
    assert (net.fc14.in_features, net.fc14.out_features, net.fc15.out_features) == (512, 512, 10)
    assert net(torch.zeros(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize(
    "name, ratio",
    [(n, 0.0 if n.endswith(("baseline", "1-4")) else 0.25) for n in names() if "/all_cnn" in n],
)
def test_dropout_before_conv10_is_that_of_tables_s8_to_s13(name, ratio):
    found = {key: m.p for key, m in on_meta(name, 1000).named_children() if isinstance(m, nn.Dropout)}
    assert found == ({"dropout9": ratio} if ratio else {})


# In NOTES-independent words: numbers that everyone knows, or that follow from the layers.
VGG6_WEIGHTS = 9 * (3 * 128 + 128 * 128 + 128 * 256 + 256 * 256 + 256 * 512 + 512 * 512)
VGG6_UNITS, VGG6_OUTPUT = 2 * (128 + 256 + 512), 512 * 1000 + 1000
RESNET50_WEIGHTS, RESNET50_UNITS, RESNET50_OUTPUT = 23_454_912, 26_560, 2048 * 1000 + 1000
COUNTS = {
    "gmp/vgg6-sp": VGG6_WEIGHTS + VGG6_UNITS + VGG6_OUTPUT,
    "gmp/vgg6-wn": VGG6_WEIGHTS + 2 * VGG6_UNITS + VGG6_OUTPUT + 1000,
    "gmp/vgg6-wn-mbn": VGG6_WEIGHTS + 2 * VGG6_UNITS + VGG6_OUTPUT + 1000,
    "gmp/vgg6-bn": VGG6_WEIGHTS + 2 * VGG6_UNITS + VGG6_OUTPUT,
    "gmp/vgg6-gmp": VGG6_WEIGHTS + VGG6_UNITS + VGG6_OUTPUT,  # as many as SP (gmp 4.1)
    "gmp/vgg6-gmp-imn": VGG6_WEIGHTS + VGG6_UNITS + VGG6_OUTPUT,
    "gmp/resnet50-sp": RESNET50_WEIGHTS + RESNET50_UNITS + RESNET50_OUTPUT,
    "gmp/resnet50-wn": RESNET50_WEIGHTS + 2 * RESNET50_UNITS + RESNET50_OUTPUT + 1000,
    "gmp/resnet50-wn-mbn": RESNET50_WEIGHTS + 2 * RESNET50_UNITS + RESNET50_OUTPUT + 1000,
    "gmp/resnet50-bn": 25_557_032,
    "gmp/resnet50-gmp": RESNET50_WEIGHTS + RESNET50_UNITS + RESNET50_OUTPUT,
    "gmp/resnet50-gmp-imn": RESNET50_WEIGHTS + RESNET50_UNITS + RESNET50_OUTPUT,
    # the authors': no learned shift after a mean-only norm, and nothing else changes in number
    "gmp/vgg6-wn-mbn-authors": VGG6_WEIGHTS + VGG6_UNITS + VGG6_OUTPUT + 1000,
    "gmp/vgg6-bn-authors": VGG6_WEIGHTS + 2 * VGG6_UNITS + VGG6_OUTPUT,
    "gmp/vgg6-gmp-imn-authors": VGG6_WEIGHTS + VGG6_UNITS + VGG6_OUTPUT,
    "gmp/resnet50-wn-mbn-authors": RESNET50_WEIGHTS + RESNET50_UNITS + RESNET50_OUTPUT + 1000,
    "gmp/resnet50-bn-authors": 25_557_032,
    "gmp/resnet50-gmp-imn-authors": RESNET50_WEIGHTS + RESNET50_UNITS + RESNET50_OUTPUT,
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "densenet121": 7_978_856,
    "structure/resnet34": 21_797_672,
    "structure/hbnet34": 21_797_672,
    "structure/densenet121": 7_978_856,
    # alpha: one per pair and one per bottleneck, but none in a block's first layer, where batch norms cancel it
    "structure/agdnet121": 7_978_856 + sum(n * (n + 1) // 2 - 1 + n - 1 for n in (6, 12, 24, 16)),
}
CIFAR_COUNTS = {
    "structure/resnet56": 853_018,
    "structure/resnet110": 1_727_962,
    "structure/resnet56-unrectified": 853_018,
    "structure/resnet110-unrectified": 1_727_962,
    "structure/hbnet56": 853_018,
    "structure/hbnet110": 1_727_962,
    "structure/densenet40": 1_019_722,
    "structure/densenet52": 1_785_466,
    "structure/agdnet40": 1_019_722 + 3 * (12 * 13 // 2 - 1),
    "structure/agdnet52": 1_785_466 + 3 * (16 * 17 // 2 - 1),
}


@pytest.mark.parametrize("name", [*COUNTS, *CIFAR_COUNTS])
def test_parameters_are_as_many_as_published(name):
    assert count(on_meta(name, 1000 if name in COUNTS else 10)) == {**COUNTS, **CIFAR_COUNTS}[name]


@pytest.mark.parametrize("method, parameters", [("sp", 1001), ("wn", 1102), ("bn", 1101), ("gmp", 1001)])
def test_mlp1_has_100_hidden_units(method, parameters):
    net = on_meta(f"gmp/mlp1-{method}", 1, in_channels=8)
    assert count(net) == parameters
    assert net.fc1.out_features == 100


@pytest.mark.parametrize(
    "algorithm, paths",
    [("gd", 1), ("hb", 1), ("agd", 1), ("agd2", 1), ("agd2-latest", 1), ("admm", 2)],
)
def test_the_networks_of_section_5_3_are_k_layers_of_100_sigmoids(algorithm, paths):
    net = on_meta(f"structure/fc-{algorithm}", 100, depth=30)
    assert count(net) == paths * 30 * (100 * 100 + 100)
    assert {type(m) for m in net.modules() if not list(m.children())} == {nn.Linear, nn.Sigmoid}


def test_an_admm_network_has_two_paths_and_a_dmrnet_too():
    first_blocks = sum(
        p.numel() for k, p in on_meta("resnet56", 10).named_parameters() if ".0." in k and "layer1" not in k
    )
    first_blocks += sum(p.numel() for k, p in on_meta("resnet56", 10).named_parameters() if "layer" not in k)
    for name in ("structure/admmnet56", "structure/dmrnet56"):
        assert count(on_meta(name, 10)) == 2 * 853_018 - first_blocks


def test_every_published_variant_is_there():
    papers = [name.split("/")[0] for name in names() if "/" in name]
    assert {paper: papers.count(paper) for paper in papers} == {
        "crelu": 6 + (4 + 2 + 4) + 9,
        "gmp": (6 + 6 + 4) + (6 + 3 + 4),
        "structure": 6 + 17,
    }


def test_gmp_rectifies_inside_its_layers_and_imn_is_before_all_but_the_first():
    net = on_meta("gmp/vgg6-gmp-imn", 1000)
    assert all(isinstance(net.get_submodule(f"conv{k}").activation, nn.ReLU) for k in range(1, 7))
    assert [name for name, _ in net.named_children() if "imn" in name] == [f"imn{k}" for k in range(2, 7)]


def test_the_authors_vgg6_is_centred_after_every_activation_so_before_max_pools_and_the_output():
    layers = [name for name, _ in on_meta("gmp/vgg6-gmp-imn-authors", 1000).named_children()]
    assert layers == [
        *("conv1", "imn1", "conv2", "imn2", "pool1"),
        *("conv3", "imn3", "conv4", "imn4", "pool2"),
        *("conv5", "imn5", "conv6", "imn6", "pool3"),
        *("avgpool", "flatten", "fc7"),
    ]


def test_the_authors_residual_blocks_are_centred_after_the_sum_and_not_before_it():
    net = on_meta("gmp/resnet50-gmp-imn-authors", 1000)
    norms = [name for name, module in net.named_modules() if isinstance(module, MeanNorm)]
    inside = [name for name in norms if "imn" in name]
    sums = [name for name in norms if "after" in name]
    assert len(inside) == 1 + 2 * 16  # none after conv3, which is added
    assert len(sums) == 16
    assert len(norms) == len(inside) + len(sums)


@pytest.mark.parametrize("name", [name for name in names() if name.endswith("-authors")])
def test_the_authors_norms_have_their_frameworks_momentum_and_eps_and_no_learned_shift(name):
    net = on_meta(name, 10, **({"in_channels": 8} if "mlp" in name else {}))
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert (module.momentum, module.eps) == (0.01, 1e-3)
        elif isinstance(module, MeanNorm):
            assert (module.momentum, module.bias) == (0.01, None)


@pytest.mark.parametrize("method", ["sp", "wn", "bn", "gmp"])
def test_the_authors_networks_begin_with_glorots_uniform_weights(method):
    weight = create(f"gmp/mlp1-{method}-authors", num_classes=1, in_channels=300).fc1.weight.detach()
    bound = (6 / 400) ** 0.5
    assert 0.99 * bound < weight.abs().max() <= bound * (1 + 1e-6)


def test_alexnet_has_torchvisions_names_and_shapes():
    with torch.device("meta"):
        net = create("alexnet", num_classes=1000)
    shapes = {0: (64, 3, 11, 11), 3: (192, 64, 5, 5), 6: (384, 192, 3, 3), 8: (256, 384, 3, 3)}
    features = {f"features.{k}": shape for k, shape in {**shapes, 10: (256, 256, 3, 3)}.items()}
    sizes = {1: (4096, 9216), 4: (4096, 4096), 6: (1000, 4096)}
    layers = {**features, **{f"classifier.{k}": shape for k, shape in sizes.items()}}
    expected = {}
    for name, shape in layers.items():
        expected |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    assert {key: tuple(value.shape) for key, value in net.state_dict().items()} == expected
    assert net(torch.zeros(2, 3, 224, 224, device="meta")).shape == (2, 1000)


def test_alexnet_computes_what_torchvisions_computes():
    net = create("alexnet", num_classes=5, width=0.05).double().eval()
    weights = {key: torch.randn_like(value) * 0.1 for key, value in net.state_dict().items()}
    net.load_state_dict(weights)

    def layer(apply, x, name, *arguments):
        return apply(x, weights[f"{name}.weight"], weights[f"{name}.bias"], *arguments)

    x = torch.randn(2, 3, 95, 95, dtype=torch.float64)
    y = F.max_pool2d(layer(F.conv2d, x, "features.0", 4, 2).relu(), 3, 2)
    y = F.max_pool2d(layer(F.conv2d, y, "features.3", 1, 2).relu(), 3, 2)
    for k in (6, 8, 10):
        y = layer(F.conv2d, y, f"features.{k}", 1, 1).relu()
    y = F.adaptive_avg_pool2d(F.max_pool2d(y, 3, 2), 6).flatten(1)
    for k in (1, 4):
        y = layer(F.linear, y, f"classifier.{k}").relu()
    torch.testing.assert_close(net(x), layer(F.linear, y, "classifier.6"), rtol=1e-12, atol=1e-12)


def test_resnet50_under_gmp_and_imn_is_bare_before_additions_and_has_no_norm_on_skips():
    net = on_meta("gmp/resnet50-gmp-imn", 1000)
    geometric = {name: m for name, m in net.named_modules() if isinstance(m, GeometricConv2d)}
    assert len(geometric) == 53
    for name, layer in geometric.items():
        assert (layer.activation is None) == name.endswith(("conv3", "downsample.0"))
    assert isinstance(net.fc, nn.Linear)
    norms = [name for name, _ in net.named_modules() if "imn" in name]
    assert len(norms) == 3 * 16
    assert not any("downsample" in name for name in norms)

"""The compiled kernels against the formulas in float64, and what happens where they are not built."""

import os
import shlex
import shutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from relucid.nn import GeometricLinear, kernels

LENGTHS = [1, 7, 8, 9, 511, 512, 513, 1025]  # around the numbers of lanes and of columns at a time
built = pytest.mark.skipif(
    not kernels.are_built(), reason="the kernels are not built: there is no C compiler"
)


@pytest.fixture(autouse=True)
def _on_the_cpu():
    with torch.device("cpu"):
        yield


def reference(x, scale, latitude):
    """w and p in float64, as gmp Eq. 10 has them."""
    x, scale = x.double(), scale.double()
    along, across = (x.sin(), x.cos()) if latitude else (x.cos(), x.sin())
    products = torch.cat((scale[:, None], across), 1).cumprod(1)
    return products * torch.nn.functional.pad(along, (0, 1), value=1.0), products[:, 1:]


def vectors(x, scale, latitude):
    w, p = x.new_full((len(x), x.shape[1] + 1), torch.nan), torch.full(x.shape, torch.nan)
    kernels.write_vectors(x, scale, latitude, w, p)
    return w, p


def drawn(units, length, latitude):
    """Latitudes of random directions, or their angles; some up to pi."""
    x = torch.randn(units, length) / length**0.5
    x[:, -1] = 2 * torch.pi * (torch.rand(units) - 0.5)
    return x if latitude else torch.pi / 2 - x


@pytest.mark.skipif(
    shutil.which(shlex.split(os.environ.get("CC") or "cc")[0]) is None, reason="there is no C compiler"
)
def test_are_built_where_there_is_a_compiler():
    assert kernels.are_built(), "run `pip install -e .` again: kernels.c has changed"


@built
@pytest.mark.parametrize("latitude", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("units", [1, 5])
def test_vectors(units, length, latitude):
    x, scale = drawn(units, length, latitude), torch.randn(units)
    w, p = vectors(x, scale, latitude)
    expected_w, expected_p = reference(x, scale, latitude)
    # A few roundings of float32, however long the product.
    torch.testing.assert_close(p.double(), expected_p, rtol=4e-7, atol=0)
    torch.testing.assert_close(w.double(), expected_w, rtol=4e-7, atol=1e-12)


@built
@pytest.mark.parametrize("latitude", [True, False])
def test_sines_and_cosines_of_any_number(latitude):
    x = torch.cat((torch.linspace(-600, 600, 100_001), torch.tensor([1e5, -3e7, 1e30, 0.0, -0.0])))[:, None]
    w, p = vectors(x, torch.ones(len(x)), latitude)
    expected_w, expected_p = reference(x, torch.ones(len(x)), latitude)
    torch.testing.assert_close(w.double(), expected_w, rtol=0, atol=1.2e-7)
    torch.testing.assert_close(p.double(), expected_p, rtol=0, atol=1.2e-7)


@built
def test_infinity_and_nan_spread_along_their_own_row_only():
    x = torch.zeros(3, 20)
    x[0, 4], x[1, 4] = torch.inf, torch.nan
    w, p = vectors(x, torch.ones(3), True)
    assert w[:2, 4:].isnan().all()
    assert p[:2, 4:].isnan().all()
    assert w[:2, :4].isfinite().all()
    assert w[2].isfinite().all()


@built
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("units", [1, 5])
def test_pulls(units, length):
    x, scale = (
        drawn(units, length, True).double().requires_grad_(),
        torch.randn(units).double().requires_grad_(),
    )
    g = torch.randn(units, length + 1)
    w, p = reference(x, scale, True)
    expected, in_scale = torch.autograd.grad((w * g).sum(), (x, scale))
    pull, inner = torch.full(x.shape, torch.nan), torch.full((units, 1), torch.nan)
    kernels.write_pulls(g, w.detach().float(), p.detach().float(), pull, inner)
    torch.testing.assert_close(pull.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(inner[:, 0].double(), in_scale * scale.detach(), rtol=1e-5, atol=1e-6)


@built
@pytest.mark.parametrize("kind", ["transposed", "expanded", "columns of more"])
def test_gradients_and_latitudes_of_any_strides(kind):
    x = drawn(6, 40, True)
    w, p = vectors(x, torch.ones(6), True)
    g = {
        "transposed": torch.randn(41, 6).T,
        "expanded": torch.randn(6, 1).expand(6, 41),
        "columns of more": torch.randn(6, 50)[:, :41],
    }[kind]
    found, expected = (torch.empty(6, 40), torch.empty(6)), (torch.empty(6, 40), torch.empty(6))
    kernels.write_pulls(g, w, p, *found)
    kernels.write_pulls(g.contiguous(), w, p, *expected)
    assert all(map(torch.equal, found, expected))
    assert torch.equal(vectors(x.T.contiguous().T, torch.ones(6), True)[0], w)


@built
def test_several_threads_compute_the_same():
    x, g = drawn(301, 700, True), torch.randn(301, 701)
    found = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        w, p = vectors(x, torch.ones(301), True)
        pull, inner = torch.empty_like(p), torch.empty(301)
        kernels.write_pulls(g, w, p, pull, inner)
        torch.set_num_threads(before)
        found.append((w, p, pull, inner))
    assert all(map(torch.equal, *found))


def gradients(layer, x):
    layer.zero_grad()
    layer(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in layer.parameters()]


@built
@pytest.mark.parametrize("smallest", [1.0, 1e-15, 0.0])
def test_a_layer_learns_the_same_with_them_and_without(smallest, monkeypatch):
    layer, x = GeometricLinear(300, 6, activation=torch.nn.ReLU()), torch.randn(9, 300)
    with torch.no_grad():
        layer.latitudes[:, 7] = torch.tensor(smallest).acos()
    found = gradients(layer, x)
    monkeypatch.setattr(kernels, "_library", None)
    with torch.no_grad():
        layer.scale.add_(0.0)  # nothing that was built with them is used again
    for ours, theirs in zip(found, gradients(layer, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("RELUCID_KERNELS", "0")
    assert kernels._load() is None


@built
def test_a_library_of_another_source_is_not_loaded(tmp_path, monkeypatch):
    before = kernels.library_path(kernels.HERE)
    shutil.copy(kernels.HERE / "kernels.c", tmp_path)
    shutil.copy(before, tmp_path)
    monkeypatch.setattr(kernels, "HERE", tmp_path)
    assert kernels._load() is not None
    with (tmp_path / "kernels.c").open("a") as source:
        source.write("/* changed */")
    assert kernels._load() is None


class _Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_who_looks_at_every_operation_sees_all_of_them():
    with _Seen() as seen:
        GeometricLinear(20, 5)(torch.randn(3, 20)).sum().backward()
    assert {"sin", "cos", "cumprod_", "cumsum_"} <= seen.names

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from relucid.inspect import examine
from relucid.inspect.top import COUNT

IMAGES = torch.randn(100, 3, 6, 6)


@pytest.fixture(scope="module")
def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())


def test_the_inputs_with_the_largest_values_are_found_however_the_data_comes(net):
    values = net[0](IMAGES).flatten(2).detach()
    best, where = values.amax(2).T.topk(COUNT, 1)
    for data in (IMAGES, IMAGES.split(7), TensorDataset(IMAGES)):
        found = examine(net, IMAGES[:1], data, measures=["top_inputs"])["0"].measured["top_inputs"]
        torch.testing.assert_close(found.value, best)
        assert torch.equal(found.index, where)
        assert torch.equal(found.position, values.argmax(2).T.gather(1, where))


def test_fewer_inputs_than_are_kept_are_all_kept(net):
    found = examine(net, IMAGES[:1], IMAGES[:4], measures=["top_inputs"])["0"].measured["top_inputs"]
    assert found.index.sort(1).values.tolist() == [[0, 1, 2, 3]] * 4


@pytest.mark.needs("plotly")
def test_the_images_are_drawn_one_row_per_unit(net):
    found = examine(net, IMAGES[:1], IMAGES, measures=["top_inputs"])["0"].measured["top_inputs"]
    (picture,) = found.figure(TensorDataset(IMAGES, torch.zeros(100)), units=2).data
    assert (len(picture.z), len(picture.z[0])) == (2 * 7, COUNT * 7)
    with pytest.raises(ValueError, match="1 or 3 channels"):
        found.figure(torch.zeros(100, 5))

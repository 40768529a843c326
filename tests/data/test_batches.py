import pytest
import torch

from relucid.data.batches import in_batches

TABLE = torch.arange(20.0).view(4, 5)


@pytest.mark.parametrize("table", [TABLE, TABLE.numpy()], ids=["tensor", "array"])
def test_columns_of_one_table_are_inputs_and_targets(table):
    ((inputs, targets),) = in_batches((table[:, :-1], table[:, -1]))
    assert inputs.tolist() == table[:, :4].tolist()
    assert targets.tolist() == table[:, 4].tolist()


@pytest.mark.parametrize("table", [TABLE, TABLE.numpy()], ids=["tensor", "array"])
def test_rows_of_one_table_are_batches(table):
    first, second = in_batches((table[:2], table[2:]))
    assert [*first.tolist(), *second.tolist()] == table.tolist()

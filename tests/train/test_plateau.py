import torch
from hypothesis import given
from hypothesis import strategies as st

from relucid.train import Plateau
from relucid.train.plateau import PlateauState


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from([0.0, 1.5]),
)
def test_the_rate_is_that_of_torch_and_the_end_that_of_a_plain_count(values, patience, more, threshold):
    plateau = Plateau(patience, patience + more, factor=0.5, threshold=threshold)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    # torch counts to more than its patience, we to as many as that
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=patience - 1, threshold=threshold, threshold_mode="abs", eps=0
    )
    state, best, since = PlateauState.start(1), float("inf"), 0
    for value in values:
        since = 0 if value < best else since + 1
        best = min(best, value)
        better = state.update(torch.tensor([float(value)]), plateau)
        scheduler.step(value)
        assert better.item() == (since == 0)
        assert state.best.item() == best
        assert state.waited.item() == since
        assert state.factor.item() == optimizer.param_groups[0]["lr"]


def test_a_value_that_is_not_a_number_is_not_better():
    state = PlateauState.start(2)
    assert state.update(torch.tensor([torch.nan, 1.0]), Plateau(1, 2)).tolist() == [False, True]
    assert state.best.tolist() == [float("inf"), 1.0]

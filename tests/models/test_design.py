import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relucid.models import Design
from relucid.models.design import CHOICES
from relucid.nn.rules import HeavyBall, RelaxedNesterov2, Rule

RULES = [
    HeavyBall(beta=0.3),
    HeavyBall(beta1=(1.0, 0.5), beta2=0.0, learnable=True),
    RelaxedNesterov2(alpha=1.0),
]


def maybe(*values):
    return st.sampled_from([None, *values])


designs = st.builds(
    Design,
    activation=maybe(*CHOICES["activation"]),
    weights=maybe("standard", "geometric"),  # weightnorm does not go with every norm
    norm=maybe(*CHOICES["norm"]),
    propagation=maybe(*CHOICES["propagation"], *RULES),
)


def written(design):
    """A design as a study's configuration holds it."""
    rule = design.propagation
    plain = {"rule": type(rule).__name__, **vars(rule)} if isinstance(rule, Rule) else rule
    return json.dumps({**vars(design), "propagation": plain})


@given(designs)
def test_a_design_survives_json_and_can_be_a_key(design):
    again = Design.from_dict(json.loads(written(design)))
    assert again == design
    assert {design: "found"}[again] == "found"


@given(designs, designs)
def test_with_defaults_keeps_what_is_chosen_and_takes_the_rest(first, second):
    both = first.with_defaults(second)
    for name in CHOICES:
        chosen = getattr(first, name)
        assert getattr(both, name) == (getattr(second, name) if chosen is None else chosen)


def test_a_design_is_frozen_and_prints_its_choices():
    design = Design(activation="crelu", propagation=HeavyBall(beta=0.3))
    with pytest.raises(FrozenInstanceError):
        design.activation = "relu"
    assert str(design) == (
        "crelu, backbone's own weights, norm backbone's own, "
        "HeavyBall(beta=0.3, beta1=None, beta2=None, learnable=False)"
    )

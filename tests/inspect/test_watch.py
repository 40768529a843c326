import copy
import io
import logging
import math
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn

from relucid.convert import to_crelu
from relucid.inspect import Watch, metrics
from relucid.inspect._metrics import KEYS

INPUTS = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))


def network(dead=3, activation=nn.ReLU):
    net = nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 2))
    net[0].bias.data[:dead] = -100.0
    return net


def train(net, watch, steps, batch=64, optimizer=None, call=None):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        (call or (lambda x: net(x).sum()))(torch.randn(batch, 4)).backward()
        optimizer.step()
        if watch is not None:
            watch.step()


def logged(net, **options):
    """A watch, and the list of what it logs."""
    result = []
    return Watch(net, log=lambda metrics, step: result.append((step, metrics)), **options), result


def warnings_in(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_metrics_are_logged_every_so_many_steps_and_every_key_is_there():
    net = network()
    watch, result = logged(net, every=5)
    train(net, watch, 12)
    assert [(step, each["dead"]) for step, each in result] == [(5, 0.5), (10, 0.5)]
    assert result[0][1].keys() == set(KEYS)
    assert watch.metrics == result[-1][1]


def test_with_layers_it_logs_those_too_and_a_name_begins_every_key():
    net = network()
    watch, result = logged(net, every=1, name="critic", layers=True)
    train(net, watch, 1)
    assert {"critic/dead", "critic/dead/0", "critic/effective rank/0"} <= result[0][1].keys()
    assert all(key.startswith("critic/") for key in result[0][1])


def test_it_warns_of_the_worst_layer_once_per_change(caplog):
    net = nn.Sequential(nn.Linear(4, 60), nn.ReLU(), nn.Linear(60, 6), nn.ReLU(), nn.Linear(6, 2))
    net[2].bias.data[:] = -100.0
    watch = Watch(net, every=2)
    train(net, watch, 8)
    (message,) = warnings_in(caplog)
    assert "step 2: " in message
    assert "100% of the units of 2 are dead" in message
    assert "to_crelu" in message
    net[2].bias.data[:] = 0.0
    train(net, watch, 2)
    net[2].bias.data[:] = -100.0
    train(net, watch, 4)
    assert len(warnings_in(caplog)) == 2
    net[0].bias.data[:] = -100.0
    train(net, watch, 2)
    assert "units of 0 are dead" in warnings_in(caplog)[-1]


@pytest.mark.parametrize("limit, count", [(0.4, 1), (0.5, 0)])
def test_the_limit_is_a_share_of_a_layers_units(limit, count, caplog):
    net = network()
    train(net, Watch(net, every=2, limit=limit), 2)
    assert len(warnings_in(caplog)) == count


def test_the_log_function_may_mend_the_network_and_then_no_warning_follows(caplog):
    net = network(dead=6)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.0)

    def mend(metrics, step):
        if metrics["dead"] > 0.5:
            to_crelu(net, INPUTS, inplace=True, optimizer=optimizer)

    Watch(net, every=2, log=mend).attach(optimizer)
    train(net, None, 6, optimizer=optimizer)
    assert len(warnings_in(caplog)) == 1
    assert metrics(net, INPUTS)["dead"] == 0.0


def test_act_is_called_once_when_units_have_died():
    net, acted = network(dead=6), []

    def act(watch):
        acted.append((watch.time, metrics(watch.model, watch.inputs)["dead"]))

    watch = Watch(net, every=2, act=act)
    train(net, watch, 8)
    assert acted == [(2, 1.0)]
    net[0].bias.data[:] = 0.0
    train(net, watch, 2)
    net[0].bias.data[:] = -100.0
    train(net, watch, 4)
    assert [time for time, _ in acted] == [2, 12]


def test_without_a_function_metrics_go_to_the_logger(caplog):
    caplog.set_level(logging.INFO, "relucid")
    net = network()
    train(net, Watch(net, every=2, limit=1.0), 2)
    assert "step 2: dead 0.5" in caplog.text


@pytest.mark.parametrize("batch", [1, 4, 100, 300])
def test_it_keeps_enough_inputs_at_any_batch_size(batch):
    net = network()
    seen = []
    watch = Watch(net, every=400, act=lambda watch: seen.append(watch.inputs.batches[""]), limit=0.4)
    train(net, watch, 399, batch=batch)
    assert watch._inputs._handles
    train(net, watch, 1, batch=batch)
    ((kept,),) = seen
    assert 256 <= len(kept.args[0]) <= 256 + batch
    assert not watch._inputs.kept
    assert not watch._inputs._handles  # far from the next measurement
    train(net, watch, 400, batch=batch)
    assert watch.metrics["dead"] == 0.5


def test_inputs_are_kept_from_one_measurement_to_the_next_where_these_are_few():
    net = network()
    watch, result = logged(net, every=10)
    train(net, watch, 40, batch=1)
    assert [math.isnan(metrics["dead"]) for _, metrics in result] == [True, True, True, False]
    assert result[-1][1]["dead"] == 0.5


def test_hooks_are_on_the_modules_only_shortly_before_a_measurement():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    Watch(net, every=100).attach(optimizer)
    hooked = []
    for _ in range(100):
        train(net, None, 1, optimizer=optimizer)
        hooked.append(any(m._forward_pre_hooks or m._forward_hooks for m in net.modules()))
    assert sum(hooked) <= 6
    assert hooked[94:99] == [True] * 5


def test_evaluation_without_gradients_is_not_what_is_watched(caplog):
    net = network()
    watch = Watch(net, every=1)
    with torch.no_grad():
        net.eval()(torch.randn(1, 4))
    watch.step()
    assert not watch.metrics
    assert "data=" in warnings_in(caplog)[0]
    net(torch.randn(50, 4)).sum()  # in evaluation for frozen norms, but trained
    watch.step()
    assert watch.metrics["dead"] == 0.5


def test_data_of_ones_own_need_no_call():
    net = network()
    watch, result = logged(net, every=2, data=[INPUTS[:70], INPUTS[70:]])
    for _ in range(4):
        watch.step()
    assert [each["dead"] for _, each in result] == [0.5, 0.5]
    assert result[0][1]["effective rank"] == pytest.approx(metrics(net, INPUTS)["effective rank"])


class Agent(nn.Module):
    """As cleanrl's: methods and no forward."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = network(), network(6, nn.ReLU)

    def get_action_and_value(self, x):
        return self.actor(x), self.critic(x)


def test_an_agent_without_forward_is_watched_by_the_parts_that_are_called(caplog):
    agent = Agent()
    watch, result = logged(agent, every=20, layers=True)
    train(agent, watch, 40, batch=16, call=lambda x: sum(y.sum() for y in agent.get_action_and_value(x)))
    assert [step for step, _ in result] == [20, 40]
    assert result[0][1]["dead/actor.0"] == 0.5
    assert result[0][1]["dead/critic.0"] == result[0][1]["worst dead"] == 1.0
    assert result[0][1]["dead"] == 0.75
    (message,) = warnings_in(caplog)
    assert "critic.0" in message


def test_an_agent_without_forward_is_watched_on_data_by_one_of_its_methods():
    agent = Agent()
    watch, result = logged(agent, every=1, data=INPUTS, call="get_action_and_value")
    watch.step()
    assert result[0][1]["dead"] == 0.75
    with pytest.raises(ValueError, match="data="):
        Watch(agent, call="get_action_and_value")


def test_a_saturated_policy_is_reported_with_the_remedy_that_helps(caplog):
    agent = Agent()
    watch, result = logged(agent, every=2, policy="actor", limit=1.0)
    calls = {"call": lambda x: sum(y.sum() for y in agent.get_action_and_value(x))}
    train(agent, watch, 2, **calls)
    assert 0.15 * math.log(2) < result[0][1]["policy entropy"] <= math.log(2)
    assert not warnings_in(caplog)
    agent.actor[2].bias.data[0] = 100.0
    train(agent, watch, 4, **calls)
    (message,) = warnings_in(caplog)
    assert "reset" in message
    assert "'actor'" in message
    with pytest.raises(AttributeError):
        Watch(agent, policy="head")


class TakesOneMapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, batch):
        return self.net(batch["x"])


class TakesAList(TakesOneMapping):
    def forward(self, batch):
        return self.net(batch[0] + batch[1])


class TakesSeveral(TakesOneMapping):
    def forward(self, x, *more, scale=1.0, **options):
        return self.net(scale * sum(more, x) * options.get("times", 1))


@pytest.mark.parametrize(
    "kind, call",
    [
        (TakesOneMapping, lambda net, x: net({"x": x})),
        (TakesAList, lambda net, x: net([x, x])),
        (TakesSeveral, lambda net, x: net(x)),
        (TakesSeveral, lambda net, x: net(x, x, x)),
        (TakesSeveral, lambda net, x: net(x, x, scale=2.0)),
        (TakesSeveral, lambda net, x: net(x=x, times=3)),
    ],
)
def test_arguments_are_kept_as_they_were_given(kind, call):
    net = kind()
    watch, result = logged(net, every=3)
    train(net, watch, 3, batch=20, call=lambda x: call(net, x).sum())
    assert result[0][1]["dead"] == 0.5


def test_calls_with_different_arguments_are_measured_one_by_one():
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, what="outputs"):
            return self.net(x) if what == "outputs" else self.net[:2](x)

    net = Features()
    watch, result = logged(net, every=1)
    net(torch.randn(32, 4))
    train(net, watch, 1, call=lambda x: net(x, what="features").sum())
    assert result[0][1]["dead"] == 0.5


def test_a_copy_of_a_watched_network_is_quantized():
    net = network()
    watch = Watch(net, every=1)
    copied = copy.deepcopy(net)
    assert watch.time == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantization has moved to a package of its own
        quantized = torch.ao.quantization.quantize_dynamic(copied, {nn.Linear})
        torch.testing.assert_close(quantized(INPUTS), net(INPUTS), rtol=0.1, atol=0.1)


def test_a_recurrent_network_whose_state_has_the_batch_elsewhere_is_watched():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.RNN(4, 5, nonlinearity="relu", batch_first=True), nn.Linear(5, 2)

        def forward(self, x, state):
            return self.head(self.rnn(x, state)[0])

    net = Recurrent()
    watch, result = logged(net, every=3)
    call = lambda x: net(x.view(16, 4, 4), torch.zeros(1, 16, 5)).sum()  # noqa: E731
    train(net, watch, 3, call=call)
    assert result[0][1]["dormant"] >= 0


def test_a_network_with_nothing_to_watch_says_so(caplog):
    net = nn.Linear(4, 2)
    train(net, Watch(net, every=1), 3)
    (message,) = warnings_in(caplog)
    assert "activation" in message


class Uncopied(torch.Tensor):
    def clone(self, *_, **__):
        raise KeyError("it stays where it is")


def fail(*_):
    raise KeyError("dead")


@pytest.mark.parametrize(
    "options, call",
    [
        ({"log": fail}, None),
        ({"step": fail}, None),
        ({"act": fail, "limit": 0.0}, None),
        ({"data": INPUTS, "call": fail}, None),
        ({}, lambda net, x: net(x.as_subclass(Uncopied)).as_subclass(torch.Tensor).sum()),
    ],
    ids=["log", "step", "act", "call", "inputs that cannot be copied"],
)
def test_a_failure_inside_is_a_warning_and_training_goes_on(options, call, caplog):
    net = network()
    train(net, Watch(net, every=1, **options), 3, call=call and (lambda x: call(net, x)))
    assert sum("KeyError" in message for message in warnings_in(caplog)) == 1


def test_calls_under_vmap_are_left_alone_and_end_nothing():
    net = network()
    watch, result = logged(net, every=1)
    torch.func.vmap(net)(INPUTS)
    watch.step()
    assert not result
    train(net, watch, 1)
    assert result


class Log:
    """A logger that cannot be copied, as those that write in a thread of their own."""

    def __init__(self):
        self.lock, self.steps = threading.Lock(), []

    def log(self, metrics, step):
        self.steps.append(step)


def test_a_watched_network_is_converted_and_watched_on_while_its_copies_are_not():
    net, log = network(), Log()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    watch = Watch(net, every=2, log=log.log).attach(optimizer)
    to_crelu(net, torch.randn(40, 4), inplace=True, optimizer=optimizer)
    copy.deepcopy(net)(torch.randn(40, 4))
    assert not watch._inputs.kept
    train(net, None, 2, optimizer=optimizer)
    assert log.steps == [2]
    assert watch.metrics["dead"] == 0.0


class Wrapped:
    """As accelerate's and others' optimizers are."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()


def test_it_attaches_to_the_optimizer_inside_a_wrapper_and_counts_the_first_only():
    net = network()
    inner, other = (torch.optim.SGD(net.parameters(), lr=0.0) for _ in range(2))
    watch = Watch(net, every=2).attach(Wrapped(Wrapped(inner))).attach(other)
    train(net, None, 3, optimizer=inner)
    other.step()
    assert watch.time == 3
    watch.detach()
    train(net, None, 3, optimizer=inner)
    assert watch.time == 3
    with pytest.raises(TypeError, match="attach to"):
        watch.attach(object.__new__(type("Own", (), {"__dict__": {}})))


@pytest.mark.needs("accelerate")
def test_it_attaches_to_accelerates_optimizer():
    from accelerate import Accelerator

    net = network()
    optimizer = Accelerator(cpu=True).prepare(torch.optim.SGD(net.parameters(), lr=0.0))
    watch = Watch(net, every=1).attach(optimizer)
    train(net, None, 1, optimizer=optimizer)
    assert watch.time == 1


def test_the_gradient_norm_is_that_before_clipping_and_clearing():
    net = network(0)
    watch, result = logged(net, every=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    net(INPUTS).sum().backward()
    total = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    optimizer.step()
    optimizer.zero_grad()
    watch.step()
    assert result[0][1]["gradient norm"] == pytest.approx(float(total), rel=1e-5)


def test_the_step_may_be_counted_by_the_caller():
    net = network()
    watch, result = logged(net, every=2, step=lambda: 5000)
    train(net, watch, 2)
    assert result[0][0] == 5000


def test_it_goes_on_counting_after_a_resume_and_does_not_warn_again(caplog):
    net = network()
    watch = Watch(net, every=4, limit=0.1)
    train(net, watch, 6)
    other, result = logged(net, every=4, limit=0.1)
    other.load_state_dict(watch.state_dict())
    train(net, other, 2)
    assert [step for step, _ in result] == [8]
    assert len(warnings_in(caplog)) == 1


def test_a_watched_network_is_pickled_without_the_watch_and_its_inputs():
    net = network()
    bare = len(pickle.dumps(net))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    watch = Watch(net, every=3).attach(optimizer)
    train(net, None, 2, optimizer=optimizer, batch=3000)
    assert watch._inputs.kept
    again = pickle.loads(pickle.dumps(net))
    assert len(pickle.dumps(net)) < bare + 2000
    again(INPUTS).sum().backward()
    file = io.BytesIO()
    torch.save(net, file)
    assert file.tell() < 10000
    assert len(pickle.dumps(watch)) < bare + 4000
    other = pickle.loads(pickle.dumps(watch))
    train(other.model, other, 4)
    assert other.metrics["dead"] == 0.5
    pickle.loads(pickle.dumps(optimizer)).step()


def test_a_compiled_network_is_watched_and_a_watch_of_its_original_says_why_it_sees_nothing(caplog):
    net = network()
    compiled = torch.compile(net, backend="eager")
    compiled(INPUTS)
    watch, result = logged(compiled, every=1)
    train(compiled, watch, 1)
    assert result[0][1]["dead"] == 0.5
    blind = Watch(net, every=1)
    compiled(INPUTS)
    blind.step()
    assert blind.metrics or "torch.compile" in warnings_in(caplog)[0]

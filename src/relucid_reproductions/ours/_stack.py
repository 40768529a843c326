"""Many small networks that go on learning together, each of which may be repaired by itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.remedies import contribution

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # as torch.optim.Adam has them
DRAWS = 1_000_000  # added to a seed for the weights: the data must not depend on how many are drawn


@dataclass(frozen=True)
class Architecture:
    """A network with hidden layers of one size.

    Args:
        activation: "relu", "crelu", "tanh", "leaky_relu", or "prelu" with a slope per unit.
        units: per hidden layer.
        norm: whether layer norm, without scale and offset, precedes the activation.
        layers: how many are hidden.
        inputs: of the network.
        outputs: of the network.
        head: weights are orthogonal, with this gain in the last layer and sqrt(2) elsewhere, and biases 0; if None, all
            are drawn as nn.Linear draws them.
    """

    activation: str = "relu"
    units: int = 64
    norm: bool = False
    layers: int = 3
    inputs: int = 64
    outputs: int = 10
    head: float | None = None

    @property
    def phases(self) -> int:
        """Outputs per unit."""
        return 2 if self.activation == "crelu" else 1

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of the parameters: a weight (inputs, outputs) and a bias (1, outputs) per layer, then slopes."""
        read = [self.inputs, *[self.phases * self.units] * self.layers]
        given = [*[self.units] * self.layers, self.outputs]
        shapes = [shape for a, b in zip(read, given, strict=True) for shape in ((a, b), (1, b))]
        return shapes + [(1, self.units)] * (self.layers if self.activation == "prelu" else 0)


class Stack:
    """M networks, each with its own Adam, that take every step together; whatever else is done is done to one.

    Parameters of all networks are rows of ``flat`` (M, P), and so are Adam's moments ``first`` and ``second``;
    ``taken`` (M, K) counts its steps, by parameter. Where a network is to be another one later, what it lacks is there
    from the start, of parameters that are 0 and stay so until `open` lets them learn: the second phases of CReLU, as
    `to_crelu` opens them; slopes of PReLU; or more units.

    Args:
        architecture: of all networks.
        seeds: one per network.
        rates: of Adam, one per network.
        decay: of all parameters towards 0, as Adam's ``weight_decay``.
        anchor: the strength of L2-init, as in `relucid.remedies.L2Init`.
        later: what a network is after `open`: of the same layers, with another activation or more units.
        epsilon: of Adam.
    """

    def __init__(
        self,
        architecture: Architecture,
        seeds: Sequence[int],
        rates: Sequence[float],
        *,
        decay: float = 0.0,
        anchor: float = 0.0,
        later: Architecture | None = None,
        epsilon: float = EPSILON,
    ) -> None:
        self.architecture, self.begun = later or architecture, architecture
        if self.architecture.norm and self.architecture.units != architecture.units:
            raise ValueError("units that are 0 would change what layer norm returns: add units without norm")
        self.decay, self.anchor, self.epsilon = decay, anchor, epsilon
        self.rates = torch.tensor(rates, dtype=torch.float64).unsqueeze(1)
        self.closed = torch.full((len(seeds),), later is not None)
        self.draws = [torch.Generator().manual_seed(DRAWS + seed) for seed in seeds]
        self.shapes = self.architecture.shapes
        self.slopes = 2 * self.architecture.layers + 2  # the first parameter that is no weight or bias
        ends = torch.tensor([a * b for a, b in self.shapes]).cumsum(0).tolist()
        self.places = [slice(end - a * b, end) for end, (a, b) in zip(ends, self.shapes, strict=True)]
        self.flat, self.first, self.second, self.mask = (torch.zeros(len(seeds), ends[-1]) for _ in range(4))
        self.taken = torch.zeros(len(seeds), len(self.shapes))
        for k, (rows, columns) in enumerate(architecture.shapes):
            self.view(self.mask, k)[:, :rows, :columns] = 1.0
        for place in range(len(seeds)):
            self.flat[place] = self.fresh(place)
        self.start = self.flat.clone()
        self.params = [self.view(self.flat, k).detach().requires_grad_() for k in range(len(self.shapes))]

    def view(self, buffer: Tensor, k: int) -> Tensor:
        """The part of a buffer (M, P) that is parameter k of every network, in its shape."""
        return buffer[:, self.places[k]].view(-1, *self.shapes[k])

    def fresh(self, place: int) -> Tensor:
        """Draw new parameters (P,) of a network as it is now; slopes are 0.25, as nn.PReLU has them."""
        values = torch.zeros(self.flat.shape[1])
        now = self.begun if self.closed[place] else self.architecture
        for k, (rows, columns) in enumerate(now.shapes):
            here = values[self.places[k]].view(self.shapes[k])[:rows, :columns]
            if k >= self.slopes:
                here.fill_(0.25)
            elif now.head is None:
                bound = now.shapes[k - k % 2][0] ** -0.5
                here.copy_((2 * torch.rand(here.shape, generator=self.draws[place]) - 1) * bound)
            elif k % 2 == 0:
                gain = now.head if k == 2 * now.layers else 2**0.5
                nn.init.orthogonal_(here, gain, generator=self.draws[place])
        return values

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs (M, B, outputs) for inputs (M, B, inputs)."""
        *_, x = self.layers(x)
        return x

    def layers(self, x: Tensor) -> list[Tensor]:
        """What every layer reads, (M, B, ...), and the outputs."""
        seen = [x]
        for layer in range(self.architecture.layers):
            z = self.before(layer, seen[-1])
            seen.append(self.activated(layer, z))
        last = 2 * self.architecture.layers
        return [*seen, torch.baddbmm(self.params[last + 1], seen[-1], self.params[last])]

    def before(self, layer: int, x: Tensor) -> Tensor:
        """What the activation of a layer takes, (M, B, units)."""
        z = torch.baddbmm(self.params[2 * layer + 1], x, self.params[2 * layer])
        return F.layer_norm(z, z.shape[2:]) if self.architecture.norm else z

    def activated(self, layer: int, z: Tensor) -> Tensor:
        """What the activation of a layer returns, (M, B, phases * units)."""
        match self.architecture.activation:
            case "tanh":
                return z.tanh()
            case "leaky_relu":
                return F.leaky_relu(z)
            case "prelu":
                return z.relu() - self.params[self.slopes + layer] * (-z).relu()
            case "crelu":
                return torch.cat((z, -z), 2).relu()
            case _:
                return z.relu()

    def step(self, losses: Tensor) -> None:
        """Take a step of Adam on losses (M,)."""
        self.descend(self.gradient(losses))

    def gradient(self, losses: Tensor) -> Tensor:
        """The gradients (M, P) of losses (M,), 0 where a network is closed."""
        # A loss depends on its own network alone: the gradient of the sum is all gradients.
        gradients = torch.autograd.grad(losses.sum(), self.params)
        gradient = torch.cat([each.flatten(1) for each in gradients], 1)
        return gradient * self.mask if bool(self.closed.any()) else gradient

    @torch.no_grad()
    def descend(self, gradient: Tensor) -> None:
        """Take a step of Adam along gradients (M, P), with the operations of torch.optim.Adam in their order."""
        if self.decay:
            gradient = gradient + self.decay * self.flat
        if self.anchor:
            gradient = gradient + 2 * self.anchor * (self.flat - self.start)
        self.taken += 1
        self.first.lerp_(gradient, 1 - BETA1)
        self.second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        size = (-self.rates / (1 - BETA1 ** self.taken.double())).to(self.flat.dtype)
        correction = (1 - BETA2 ** self.taken.double()).sqrt().to(self.flat.dtype)
        root = self.second.sqrt()
        alike = bool((self.taken == self.taken[:, :1]).all())
        for k, place in enumerate([slice(None)] if alike else self.places):
            divisor = root[:, place].div_(correction[:, k : k + 1]).add_(self.epsilon)
            self.flat[:, place].addcdiv_(self.first[:, place] * size[:, k : k + 1], divisor)

    @torch.no_grad()
    def dead(self, x: Tensor) -> Tensor:
        """Which units have the same output for all inputs (M, N, inputs): (M, layers, units)."""
        seen = self.layers(x)[1:-1]
        constant = torch.stack([h.amax(1) == h.amin(1) for h in seen], 1)
        if self.architecture.phases == 1:
            return constant
        # While a second phase is closed, nothing reads it.
        units = self.architecture.units
        return constant[..., :units] & (constant[..., units:] | self.closed.view(-1, 1, 1))

    def dead_share(self, x: Tensor) -> Tensor:
        """The percentage of dead units by layer, (M, layers); units that are yet to be added do not count."""
        units = self.architecture.units
        absent = (self.closed * (units - self.begun.units)).unsqueeze(1)
        return 100 * ((self.dead(x).sum(2) - absent).double() / (units - absent))

    @torch.no_grad()
    def dormant(self, x: Tensor, threshold: float) -> Tensor:
        """Which units are active at most this share of their layer's mean (ReDo): (M, layers, units)."""
        activity = torch.stack([h.abs().mean(1) for h in self.layers(x)[1:-1]], 1)
        return activity <= threshold * activity.mean(2, keepdim=True)

    def redo(self, x: Tensor, threshold: float) -> None:
        """Draw dormant units again (ReDo)."""
        dormant = self.dormant(x, threshold)
        for place, layer in dormant.any(2).nonzero().tolist():
            self.draw(place, layer, dormant[place, layer].nonzero().flatten())

    def renew(self, place: int, *, head: bool = False) -> None:
        """Put a new network, or a new last layer, with a new optimizer in the place of one."""
        fresh, last = self.fresh(place), 2 * self.architecture.layers
        for k in (last, last + 1) if head else range(len(self.shapes)):
            here = self.places[k]
            self.flat[place, here] = fresh[here]
            self.first[place, here] = self.second[place, here] = self.taken[place, k] = 0.0

    def forget(self, place: int) -> None:
        """Let the optimizer of a network start anew."""
        for buffer in (self.first, self.second, self.taken):
            buffer[place] = 0.0

    def perturb(self, place: int, share: float) -> None:
        """Replace a share of every weight of a network by that of a new one (shrink and perturb)."""
        self.flat[place] = (1 - share) * self.flat[place] + share * self.fresh(place)

    def open(self, place: int) -> None:
        """Let a network be what it is to be later; outputs stay.

        Second phases keep the step counter of the weights that they are a part of, as `to_crelu` in place has it;
        slopes are parameters of their own, and start with none. Added units are drawn as `draw` does.
        """
        self.closed[place] = False
        self.mask[place] = 1.0
        self.taken[place, self.slopes :] = 0.0
        for layer in range(self.architecture.layers):
            self.draw(place, layer, torch.arange(self.begun.units, self.architecture.units))

    @torch.no_grad()
    def revive(self, place: int, x: Tensor) -> int:
        """Draw the units of a network that are never above 0 again, with boundaries through the mean of what they read.

        Outputs stay: such a unit gives nothing to the layers that read it. Inputs x are (M, N, inputs).
        """
        count = 0
        for layer in range(self.architecture.layers):
            inputs, outputs = (values[place] for values in self.layers(x)[layer : layer + 2])
            units = (outputs[:, : self.architecture.units] == 0).all(0).nonzero().flatten()
            self.draw(place, layer, units, centered_on=inputs.mean(0))
            count += len(units)
        return count

    @torch.no_grad()
    def draw(self, place: int, layer: int, units: Tensor, centered_on: Tensor | None = None) -> None:
        """Draw incoming weights of units again; outgoing weights and, unless centered, biases are 0.

        As in `relucid.remedies`, second moments start at those of living units, entry by entry, so that first steps are
        not longer than theirs; where no unit lives, the state of the parameter starts anew. Second phases, if there
        are any, must be closed.
        """
        if not len(units):
            return
        weight, bias, onward = (self.view(self.flat, 2 * layer + k)[place] for k in range(3))
        new = self.fresh(place)[self.places[2 * layer]].view(weight.shape)[:, units]
        weight[:, units] = new
        bias[0, units] = 0.0 if centered_on is None else -(centered_on @ new)
        onward[units] = 0.0
        living = torch.ones(self.architecture.units, dtype=torch.bool)
        living[units] = False
        for k, dim in ((2 * layer, 1), (2 * layer + 1, 1), (2 * layer + 2, 0)):
            first, second = (
                self.view(buffer, k)[place].movedim(dim, 0) for buffer in (self.first, self.second)
            )
            if bool(living.any()):
                first[units] = 0.0
                second[units] = second[: len(living)][living].mean(0)
            else:
                self.taken[place, k] = first[:] = second[:] = 0.0


class Recycling:
    """Continual backprop (Dohare et al. 2024) for all networks of a stack, as `relucid.remedies.ContinualBackprop`.

    Args:
        stack: of networks with ReLU.
        rate: the share of mature units to replace per step.
        maturity: steps for which a unit is left alone.
        decay: of the averages.
    """

    def __init__(self, stack: Stack, rate: float, maturity: int = 100, decay: float = 0.99) -> None:
        self.stack, self.rate, self.maturity, self.decay = stack, rate, maturity, decay
        shape = len(stack.flat), stack.architecture.layers, stack.architecture.units
        self.utility, self.average, self.age = (torch.zeros(shape) for _ in range(3))
        self.due = torch.zeros(shape[:2])

    @torch.no_grad()
    def step(self, seen: Sequence[Tensor]) -> None:
        """Update utilities with what the layers have just read, and replace the units that are due."""
        self.age += 1
        for layer, values in enumerate(seen[1:-1]):
            size, readers = values.abs().mean(1), self.stack.params[2 * layer + 2]
            useful = torch.stack([contribution(s, w.mT) for s, w in zip(size, readers, strict=True)])
            self.utility[:, layer].lerp_(useful, 1 - self.decay)
            self.average[:, layer].lerp_(values.mean(1), 1 - self.decay)
        mature = self.age > self.maturity
        self.due += self.rate * mature.sum(2)
        for place, layer in (self.due >= 1).nonzero().tolist():
            self._replace(place, layer, mature[place, layer].nonzero().flatten())

    def _replace(self, place: int, layer: int, mature: Tensor) -> None:
        """Replace the units of least utility; the readers' bias takes over what they contributed on average."""
        count = int(self.due[place, layer])
        self.due[place, layer] -= count
        corrected = 1 - self.decay ** self.age[place, layer]
        utility = (self.utility[place, layer] / corrected)[mature]
        units = mature[utility.topk(min(count, len(mature)), largest=False).indices]
        stack = self.stack
        weight, bias = (stack.view(stack.flat, 2 * layer + k)[place] for k in (2, 3))
        bias += (self.average[place, layer] / corrected)[units] @ weight[units]
        stack.draw(place, layer, units)
        for values in (self.utility, self.average, self.age):
            values[place, layer, units] = 0.0

"""One training in a process of its own, to be killed: python train_in_process.py DIRECTORY OUTPUT [DEVICES [DIES]]."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from problems import PLAIN, mean_norm_network, small_images, small_network

from relucid.data import Split
from relucid.train import Machine, fit


class Slow(Split):
    """A part that takes its time, so that there is a moment to be killed at, or that kills its own process."""

    dies: Path | None = None
    batches = 0

    def batch(self, indices, seed=0):
        Slow.batches += 1
        if Slow.dies and Slow.batches == 30 and os.environ["RANK"] == "1" and not Slow.dies.exists():
            Slow.dies.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(indices, seed)


def main(directory, output, devices="1", dies=None):
    torch.set_num_threads(1)
    part = small_images()
    Slow.dies = Path(dies) if dies else None
    machine = Machine(directory=Path(directory), devices=int(devices), accelerator="cpu")
    distributed = "RANK" in os.environ
    network = mean_norm_network() if distributed or devices != "1" else small_network()
    recipe = replace(PLAIN, epochs=12, augment=() if distributed else PLAIN.augment)
    fitted = fit(
        network, Slow(part.inputs, part.targets), recipe, small_images(31, seed=2), seed=3, machine=machine
    )
    found = {"weights": network.state_dict(), "history": fitted.history}
    if distributed:
        held = small_images(31, seed=2)
        short = fit(small_network(), part, replace(PLAIN, epochs=1), machine=replace(machine, directory=None))
        found |= {"tested": fitted.evaluate(held), "tested with batch norm": short.evaluate(held)}
    torch.save(found, output if os.environ.get("RANK", "0") == "0" else output + ".second")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One training in a process of its own: python train_in_process.py DIRECTORY OUTPUT [DEVICES [DIES [BATCH]]].

With DIES, a file, the process kills itself when it reads that batch, unless the file is there; then it makes it.
"""

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


class Deadly(Split):
    """A part that kills the last process of a training at one of its batches, once."""

    dies: Path | None = None
    batches, last = 0, 30

    def batch(self, indices, seed=0):
        Deadly.batches += 1
        rank, world = (int(os.environ.get(name, of)) for name, of in (("RANK", 0), ("WORLD_SIZE", 1)))
        if self.dies and self.batches == self.last and rank == world - 1 and not self.dies.exists():
            self.dies.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(indices, seed)


def main(directory, output, devices="1", dies=None, batch="30"):
    torch.set_num_threads(1)
    part = small_images()
    Deadly.dies, Deadly.last = Path(dies) if dies else None, int(batch)
    machine = Machine(directory=Path(directory), devices=int(devices), accelerator="cpu", save_every=3)
    distributed = "RANK" in os.environ
    network = mean_norm_network() if distributed or devices != "1" else small_network()
    recipe = replace(PLAIN, epochs=12, augment=() if distributed else PLAIN.augment)
    fitted = fit(
        network, Deadly(part.inputs, part.targets), recipe, small_images(31, seed=2), seed=3, machine=machine
    )
    found = {"weights": network.state_dict(), "history": fitted.history}
    if distributed:
        held = small_images(31, seed=2)
        short = fit(small_network(), part, replace(PLAIN, epochs=1), machine=replace(machine, directory=None))
        found |= {"tested": fitted.evaluate(held), "tested with batch norm": short.evaluate(held)}
    torch.save(found, output if os.environ.get("RANK", "0") == "0" else output + ".second")


if __name__ == "__main__":
    main(*sys.argv[1:])

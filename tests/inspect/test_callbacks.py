"""Examinations during training, by the trainers' own interfaces."""

import csv
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relucid.inspect import hugging_face_callback, lightning_callback

INPUTS, TARGETS = torch.randn(64, 4), torch.arange(64) % 2


def network():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    net[0].bias.data[:3] = -100.0
    return net


@pytest.mark.needs("lightning")
def test_lightning_logs_shares_of_dead_units_every_so_many_epochs_and_warns(tmp_path, caplog):
    import lightning as L
    from lightning.pytorch.loggers import CSVLogger

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    callback = lightning_callback(INPUTS[:1], INPUTS, every=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few batches and of idle cores
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=4,
            logger=CSVLogger(tmp_path),
            callbacks=[callback],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module()
        trainer.fit(module, DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=32))
    with open(tmp_path / "lightning_logs" / "version_0" / "metrics.csv") as file:
        logged = [entry for entry in csv.DictReader(file) if entry["relucid/dead"]]
    assert [float(entry["relucid/dead"]) for entry in logged] == [0.5, 0.5]
    assert [float(entry["relucid/dead/net.0"]) for entry in logged] == [0.5, 0.5]
    assert [float(entry["relucid/stable rank/net.0"]) > 0 for entry in logged] == [True, True]
    assert callback.examination["net.0"].activity.inputs == 64
    assert "50% of the units are dead, more than 10%: to_crelu(" in caplog.text


@pytest.mark.needs("transformers")
@pytest.mark.slow
def test_hugging_face_logs_by_the_trainer(tmp_path):
    import transformers

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, labels=None):
            logits = self.net(x)
            loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}

    rows = [{"x": x, "labels": y} for x, y in zip(INPUTS, TARGETS, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            num_train_epochs=2,
            per_device_train_batch_size=32,
            learning_rate=0.0,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            save_strategy="no",
        )
        trainer = transformers.Trainer(Model(), arguments, train_dataset=rows)
        callback = hugging_face_callback(trainer, {"x": INPUTS[:1]}, {"x": INPUTS})
        trainer.add_callback(callback)
        trainer.train()
    logged = [entry["relucid/dead"] for entry in trainer.state.log_history if "relucid/dead" in entry]
    assert logged == [0.5, 0.5]


@pytest.mark.needs("lightning")
def test_epochs_are_counted_from_one_on():
    with pytest.raises(ValueError, match="at least 1 epoch; got 0"):
        lightning_callback(INPUTS[:1], every=0)

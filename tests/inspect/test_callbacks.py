"""A watch as a callback of the trainers of others."""

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
def test_lightning_logs_every_so_many_steps_and_warns_once(tmp_path, caplog):
    import lightning as L
    from lightning.pytorch.loggers import CSVLogger

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch):  # there is no forward
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    callback = lightning_callback(every=4, layers=True, limit=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few batches and of idle cores
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=4,
            logger=CSVLogger(tmp_path),
            log_every_n_steps=1,
            callbacks=[callback],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=32))
    with open(tmp_path / "lightning_logs" / "version_0" / "metrics.csv") as file:
        logged = [entry for entry in csv.DictReader(file) if entry.get("relucid/dead")]
    assert [float(entry["relucid/dead"]) for entry in logged] == [0.5, 0.5]
    assert [float(entry["relucid/dead/net.0"]) for entry in logged] == [0.5, 0.5]
    assert all(float(entry["relucid/gradient norm"]) > 0 for entry in logged)
    assert len([each for each in caplog.records if "dead" in each.getMessage()]) == 1
    assert callback.state_dict()["time"] == 8


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
        trainer.add_callback(hugging_face_callback(trainer, every=2))
        trainer.train()
    logged = [entry["relucid/dead"] for entry in trainer.state.log_history if "relucid/dead" in entry]
    assert logged == [0.5, 0.5]

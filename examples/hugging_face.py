"""A network of Hugging Face's, converted and trained on by their Trainer.

pip install transformers accelerate
python examples/hugging_face.py
"""

import tempfile
from typing import Any

import torch
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments, set_seed

from relucid.convert import to_crelu
from relucid.data import Split, digits


class Rows(torch.utils.data.Dataset):
    """Images and labels, by the names that the model gives to its arguments."""

    def __init__(self, part: Split) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.part.inputs[index] / 16, "labels": self.part.targets[index]}


def loss(outputs: Any, labels: torch.Tensor, **_: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs.logits, labels)


def main(epochs: int = 3) -> None:
    data = digits()
    set_seed(0)
    config = ResNetConfig(
        num_channels=1,
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[2, 2],
        layer_type="basic",
        num_labels=10,
    )
    model = ResNetForImageClassification(config)  # or .from_pretrained(...)
    example = {"pixel_values": data.train.inputs[:4] / 16}
    conversion = to_crelu(model, example)  # not to_heavy_ball: these blocks are called one by one
    print(f"to_crelu: outputs moved by at most {conversion.max_error:.1e}")
    model = conversion.model
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            num_train_epochs=epochs,
            per_device_train_batch_size=64,
            learning_rate=0.01,
            label_names=["labels"],
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        )
        trainer = Trainer(model, arguments, train_dataset=Rows(data.train), compute_loss_func=loss)
        trainer.train()
        found = trainer.predict(Rows(data.test))
    wrong = found.predictions.argmax(1) != found.label_ids
    print(f"test error {100 * wrong.mean():.1f} %")


if __name__ == "__main__":
    main()

"""A monitor as a callback of Lightning: a small transformer with AdamW that reads handwritten digits row by row.

Run it with `python examples/monitor_lightning.py`; it prints what changes as it happens, and a summary. The trainer's
logger, in `results`, has all of it: `tensorboard --logdir results`.
"""

# pyright: reportMissingImports=false

import argparse

import pytorch_lightning as lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from principalflow.torch import Monitor


class Reader(lightning.LightningModule):
    def __init__(self, rate: float, width: int = 32):
        super().__init__()
        self.rate = rate
        self.embed, self.head = nn.Linear(8, width), nn.Linear(width, 10)
        self.position = nn.Parameter(torch.zeros(8, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(images) + self.position).mean(1))

    def training_step(self, batch, index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results", help="the folder for the trainer's log")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rate", type=float, default=0.01, help="the learning rate")
    options = parser.parse_args()

    torch.set_num_threads(1)  # a network this small gains nothing by more, and loses much where the machine is busy
    lightning.seed_everything(0, verbose=False)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 8, 8), torch.tensor(labels)
    module = Reader(options.rate)

    monitor = Monitor(module, nn.functional.cross_entropy, (x[:128], y[:128]), k=1, every=25)
    trainer = lightning.Trainer(
        max_steps=options.steps,
        callbacks=[monitor.callback()],
        gradient_clip_val=1.0,
        accelerator="cpu",
        default_root_dir=options.out,
        enable_progress_bar=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True))


if __name__ == "__main__":
    main()

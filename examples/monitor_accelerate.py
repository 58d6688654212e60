"""A monitor in a loop with Accelerate, which clips gradients and takes each step on two batches.

A small transformer reads handwritten digits row by row. Run it with `python examples/monitor_accelerate.py`; it prints
what changes as it happens, and a summary.
"""

# pyright: reportMissingImports=false

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from principalflow.torch import Monitor


class Transformer(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.embed, self.head = nn.Linear(8, width), nn.Linear(width, 10)
        self.position = nn.Parameter(torch.zeros(8, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(images) + self.position).mean(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.01, help="the learning rate")
    options = parser.parse_args()

    torch.set_num_threads(1)  # a network this small gains nothing by more, and loses much where the machine is busy
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 8, 8), torch.tensor(labels)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True)
    model, loss_fn = Transformer(), nn.functional.cross_entropy
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = x[:128].to(accelerator.device), y[:128].to(accelerator.device)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    monitor, step, batches = Monitor(model, loss_fn, data, optimizer=optimizer, k=1, every=25), 0, []
    for _ in range(options.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss_fn(model(batch[0]), batch[1]))
                batches.append(batch)
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    step += 1
                    row = monitor.observe(step, batch=batches, gradient_norm=norm)
                    optimizer.zero_grad()
                    batches = []
                    for event in row["events"] if row else ():
                        accelerator.print(event)
    accelerator.print(monitor.summary())


if __name__ == "__main__":
    main()

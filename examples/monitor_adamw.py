"""A monitor in a plain PyTorch loop: a small transformer with AdamW, whose rate a warm-up raises too far.

Handwritten digits are read row by row. Run it with `python examples/monitor_adamw.py`; it prints what changes as it
happens, and at the end why the loss spiked.
"""

# pyright: reportMissingImports=false

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

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
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=150, help="the steps until the rate is reached")
    parser.add_argument("--rate", type=float, default=0.1, help="the learning rate; 0.003 is a good one")
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 8, 8), torch.tensor(labels)
    torch.set_num_threads(1)  # a network this small gains nothing by more, and loses much where the machine is busy
    torch.manual_seed(0)
    model, loss_fn = Transformer(), nn.functional.cross_entropy
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / options.warmup, total_iters=options.warmup)

    with Monitor(model, loss_fn, (x[:128], y[:128]), optimizer=optimizer, k=1, every=20) as monitor:
        for step in range(1, options.steps + 1):
            chosen = torch.randint(len(x), (128,))
            batch = x[chosen], y[chosen]
            loss = loss_fn(model(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            schedule.step()
            row = monitor.observe(step, batch=batch, loss=loss)
            optimizer.zero_grad()
            for event in row["events"] if row else ():
                print(f"step {step:3d}, loss {loss:.3f}: {event}")
    print(f"\n{monitor.summary()}")


if __name__ == "__main__":
    main()

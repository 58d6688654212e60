"""A monitor in a PyTorch training loop: handwritten digits, full batch, to the edge of stability.

Run it with `python examples/monitor_torch.py`; it prints what changes as it happens, and a summary with a figure.
"""

# pyright: reportMissingImports=false

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import principalflow as pf
from principalflow.torch import Monitor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder for the figure")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.15, help="the learning rate h")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--budget", type=float, help="the most time to measure, as a share of the loop's own")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:600] / 16, dtype=torch.float32), torch.tensor(labels[:600])
    targets = nn.functional.one_hot(y).float()
    torch.set_num_threads(1)  # a network this small gains nothing by more, and loses much where the machine is busy
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=options.momentum)

    def loss(outputs, targets):
        return (outputs - targets).square().sum(1).mean() / 2

    with Monitor(model, loss, (x, targets), every=10, optimizer=optimizer, budget=options.budget) as monitor:
        for step in range(options.steps + 1):
            row = monitor.observe(step)
            for event in row["events"] if row else []:
                print(f"step {step:4d}  {event}")
            optimizer.zero_grad()
            loss(model(x), targets).backward()
            optimizer.step()
    print(f"\n{monitor.summary()}")

    figure = options.out / "monitor_torch.png"
    pf.plot.stability(monitor.table()).savefig(figure, dpi=110)
    print(f"\nThe figure is in {figure}.")


if __name__ == "__main__":
    main()

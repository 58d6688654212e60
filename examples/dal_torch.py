"""DAL in a PyTorch training loop: handwritten digits, no learning rate to choose.

Run it with `python examples/dal_torch.py`; `--curvature finite_difference` takes the usual closure instead.
"""

# pyright: reportMissingImports=false

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

from principalflow.torch import DAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curvature", choices=["hvp", "finite_difference"], default="hvp")
    parser.add_argument("--power", type=float, default=1.0, help="p of DAL-p")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 10))
    optimizer = DAL(model.parameters(), power=options.power, curvature=options.curvature)

    def loss():  # exact products: only the loss
        return nn.functional.cross_entropy(model(x[:1200]), y[:1200])

    def loss_and_backward():  # finite differences: the usual closure
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    closure = loss if options.curvature == "hvp" else loss_and_backward
    for i in range(options.steps + 1):
        value = optimizer.step(closure)
        if i % (options.steps // 10 or 1) == 0:
            rate = optimizer.param_groups[0]["lr"]
            print(f"step {i:4d}  loss {value:8.5f}  curvature {optimizer.curvature:7.3f}  rate {rate:.4f}")
    with torch.no_grad():
        right = (model(x[1200:]).argmax(1) == y[1200:]).float().mean()
    print(f"DAL-{options.power:g} is right about {right:.1%} of the 597 digits that it has not seen.")


if __name__ == "__main__":
    main()

"""First steps: what gradient descent does, what three flows say that it does, and how far apart they are.

Run it with `python examples/first_steps.py`; it writes a figure and says where.
"""

import argparse
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)  # flows need double precision; before any array is made

import matplotlib.pyplot as plt  # noqa: E402

import principalflow as pf  # noqa: E402

STEPS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder for the figure")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    # Losses of the paper, with a start and a learning rate. Yours would be pf.Objective(loss, params, data).
    cases = {
        "a quadratic valley": (pf.functions.quadratic([[2.0, 0.0], [0.0, 0.02]]), [1.0, 1.0], 0.9),
        "the banana function": (pf.functions.banana(), [1.3, 1.5], 0.0012),
    }
    figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
    for column, (case, (objective, start, h)) in zip(axes.T, cases.items(), strict=True):
        sharpness = float(jax.numpy.linalg.eigvalsh(objective.hessian(start))[-1])
        path = pf.descend(objective, start, h, STEPS)
        title = f"{case}: h = {h}, h λ₀ = {h * sharpness:.2f} at the start"
        print(f"\n{title}; {path.message}.")

        flows = {
            "negative gradient flow": pf.flows.NegativeGradient(),
            "IGR flow": pf.flows.IGR(h),
            "principal flow": pf.flows.Principal(h),
        }
        solutions = {name: pf.integrate(flow, objective, start, STEPS * h, saves=200) for name, flow in flows.items()}
        for name, solution in solutions.items():
            print(f"  {name}: {solution.message}, {solution.evaluations} field evaluations.")
        pf.plot.trajectories(objective, {name: s.thetas for name, s in solutions.items()}, path.thetas, ax=column[0])
        column[0].set_title(title)

        table = pf.compare(objective, start, h, STEPS, flows)
        pf.plot.errors(table, ax=column[1])
        column[1].set_title("distance from gradient descent")

    figure.suptitle("Gradient descent and three continuous-time models of it")
    target = out / "first_steps.png"
    figure.savefig(target, dpi=150)
    print(f"\nThe figure is in {target.resolve()}")


if __name__ == "__main__":
    main()

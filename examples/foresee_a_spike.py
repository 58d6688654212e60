"""A spike of the loss, foreseen: what descent will do at the edge of stability, and what it would do otherwise.

After 100 steps of gradient descent on handwritten digits the loss falls smoothly. Flows from there on answer four
questions: when does the loss spike? What would a smaller rate do? What is the mean loss? How sharp would the loss
become without the oscillation? Then descent itself goes on, to compare.

Run it with `python examples/foresee_a_spike.py`; it writes a figure and says where.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)  # when a spike comes depends on what is small at first

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import principalflow as pf  # noqa: E402

H = 0.115  # the learning rate
EVERY = 5  # steps between two points of a curve


def network(sizes):
    random = np.random.default_rng(0)
    return [(jnp.asarray(random.standard_normal((a, b)) / np.sqrt(a)), jnp.zeros(b)) for a, b in pairwise(sizes)]


def loss(params, batch):
    x, targets = batch
    for weights, bias in params[:-1]:
        x = jnp.tanh(x @ weights + bias)
    weights, bias = params[-1]
    return jnp.mean(jnp.sum((x @ weights + bias - targets) ** 2, axis=1)) / 2


def follow(name, flow, objective, theta, steps):
    """Returns the solution, with the states at these steps of descent."""
    saves = steps * H
    solution = pf.integrate(flow, objective, theta, saves[-1], saves=saves, rtol=1e-5, atol=1e-8, max_steps=5000)
    price = solution.cost / steps[-1]
    print(f"{name}: {solution.message}, for {price:.1f} gradients a step of descent.")
    return solution


def sharpness(objective, thetas):
    pairs, values = None, []
    for theta in thetas:
        pairs = pf.spectrum.top_eigenpairs(objective, theta, 1, guess=pairs, tol=1e-3)
        values.append(float(pairs.values[0]))
    return np.array(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder for the figure")
    parser.add_argument("--before", type=int, default=100, help="steps of descent before the question")
    parser.add_argument("--steps", type=int, default=150, help="steps to foresee")
    parser.add_argument("--smaller", type=float, default=0.1, help="the smaller rate to ask about")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    images, labels = load_digits(return_X_y=True)
    data = (images[:600] / 16, np.eye(10)[labels[:600]])
    objective = pf.Objective(loss, network([64, 32, 32, 10]), data)
    theta = pf.descend(objective, objective.theta, H, options.before, keep="last").thetas[-1]
    steps = np.arange(0, options.steps + 1, EVERY)

    # When does it spike? The flow of two steps has the oscillation in it.
    flow = pf.flows.TwoStep(H, order=2)
    path = follow(f"Two steps at h = {H}", flow, objective, theta, steps)
    amplitude = [float(jnp.linalg.norm(flow.amplitude(objective, state))) for state in path.states]
    peak = int(np.argmax(amplitude))
    print(f"  Half a step is {amplitude[0]:.1e} now, and longest after {steps[peak]} steps: {amplitude[peak]:.1e}.")

    # What is the mean loss? That of both iterates; the one between them is lower.
    mean_loss = [float(flow.mean_loss(objective, state)) for state in path.states]
    centres = [flow.centre(objective, state) for state in path.states]
    centre_loss = [float(objective.value(centre)) for centre in centres]
    print(f"  The mean loss is {mean_loss[peak]:.3f} then, that at the centre {centre_loss[peak]:.3f}.")

    # What would a smaller rate do? The time is the same, the steps are shorter.
    calmer = pf.flows.TwoStep(options.smaller, order=2)
    calm = follow(f"Two steps at h = {options.smaller}", calmer, objective, theta, steps)
    calm_amplitude = [float(jnp.linalg.norm(calmer.amplitude(objective, state))) for state in calm.states]
    print(f"  In the same time half a step is at most {max(calm_amplitude):.1e}.")

    # How sharp would the loss become without the oscillation? The gradient flow has none.
    smooth = follow("Gradient flow", pf.flows.NegativeGradient(), objective, theta, steps)
    sharp = {
        "at the centre of the oscillation": sharpness(objective, centres),
        f"at a rate of {options.smaller}": sharpness(objective, calm.thetas),
        "without oscillation (gradient flow)": sharpness(objective, smooth.thetas),
    }
    print(f"2/h: {2 / H:.1f} (h = {H}), {2 / options.smaller:.1f} (h = {options.smaller}).")
    print("λ₀ is at most", ", ".join(f"{values.max():.1f} {name}" for name, values in sharp.items()) + ".")

    # And now descent itself.
    thetas = pf.descend(objective, theta, H, options.steps + 1, keep="all").thetas
    losses = [float(objective.value(theta)) for theta in thetas]
    swings = np.linalg.norm(np.diff(thetas, axis=0), axis=1) / 2
    print(f"Descent: half a step is longest after {int(np.argmax(swings))} steps: {swings.max():.1e}.")

    figure = Figure(figsize=(15, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.semilogy(swings, color="black", label="descent")
    left.semilogy(steps, amplitude, "o", markersize=4, label="foreseen")
    left.semilogy(steps, calm_amplitude, "--", label=f"with a rate of {options.smaller}")
    left.set(title="half the distance of two iterates", xlabel="step from now on")
    middle.plot(losses, color="black", linewidth=0.8, label="descent")
    middle.plot(steps, mean_loss, "o", markersize=4, label="mean loss, foreseen")
    middle.plot(steps, centre_loss, label="at the centre")
    middle.set(title="loss", xlabel="step from now on")
    for (name, values), style in zip(sharp.items(), ("-", "--", ":"), strict=True):
        right.plot(steps, values, style, label=name)
    for rate in (H, options.smaller):
        right.axhline(2 / rate, color="grey", linewidth=0.8)
        right.annotate(f"2/{rate}", (0, 2 / rate), fontsize=8, va="bottom")
    right.set(title="λ₀", xlabel="step from now on")
    for ax in (left, middle, right):
        ax.legend(fontsize=8)
    figure.savefig(options.out / "foresee_a_spike.png", dpi=110)
    print(f"\nThe figure is in {(options.out / 'foresee_a_spike.png').resolve()}.")


if __name__ == "__main__":
    main()

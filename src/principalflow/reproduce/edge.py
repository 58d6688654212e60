"""λ₀ rises to the edge of stability, and beyond it the loss rises (figure 9)."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _edge
from principalflow.reproduce._flows import stack
from principalflow.reproduce._trained import label

MIDDLE, REACH = 2.05, 0.25  # "stays at 2/h": the mean of h λ₀ from 1.8 to 2.3


def run(config: _edge.Config) -> Tables:
    runs = _edge.all_trained(config)
    return {"steps": stack({run.label: _edge.steps_of(run) for run in runs}, "network"), "cost": _edge.costs(runs)}


def claims(config: _edge.Config, tables: Tables) -> list[Claim]:
    found, steps = [], tables["steps"]
    for training in _edge.networks(config):
        name = label(training)
        rows = steps[steps["network"] == name]
        later = rows["h_lambda"].iloc[len(rows) // 10 :]
        sentence = f"{name}: λ₀ comes to 2/h: the largest h λ₀ after the first tenth of the steps"
        found.append(Claim.at_least(sentence, float(later.max()), 2))
        second_half = rows["h_lambda"].iloc[len(rows) // 2 :]
        if training.loss == "mean-square":
            found.append(
                Claim.at_most(
                    f"{name}: it stays: how far the mean of h λ₀ over the second half is from {MIDDLE}",
                    abs(float(second_half.mean()) - MIDDLE),
                    REACH,
                    note=f"The mean is {second_half.mean():.3f}, over steps {second_half.min():.2f} to "
                    f"{second_half.max():.2f}.",
                )
            )
        else:
            reached = later[(later >= 2).cummax()]
            found.append(
                Claim.below(
                    f"{name}: later it falls, as with a cross-entropy: the median of h λ₀ over the last "
                    "tenth of the steps, over that since it came to 2/h",
                    float(rows["h_lambda"].iloc[-len(rows) // 10 :].median() / reached.median()),
                    0.95,
                )
            )
    increases = steps[steps["loss_change"] > 0]
    losses = {label(training): training.loss for training in _edge.networks(config)}
    for loss in dict.fromkeys(losses.values()):
        rows = increases[increases["network"].map(losses) == loss]
        found.append(
            Claim.at_least(
                f"{loss}: the loss rises where λ₀ > 2/h: share of the {len(rows)} rises that are there",
                _edge.share(rows["h_lambda"] > 2),
                0.9,
            )
        )
    return [*found, _edge.cost_claim(tables["cost"])]


def draw(config: _edge.Config, tables: Tables) -> Figure:
    losses = {label(training): training.loss for training in _edge.networks(config)}
    groups = list(tables["steps"].groupby(tables["steps"]["network"].map(losses)))
    figure = Figure(figsize=(15, 4.5 * len(groups)), layout="constrained")
    for axes, (_, rows) in zip(figure.subplots(len(groups), 3, squeeze=False), groups, strict=True):
        loss, sharpness, rises = axes
        _draw(loss, sharpness, rises, rows)
    return figure


def _draw(loss: Axes, sharpness: Axes, rises: Axes, steps: Table) -> None:
    for number, (name, rows) in enumerate(steps.groupby("network", sort=False)):
        colour = f"C{number}"
        loss.semilogy(rows["step"], rows["loss"], color=colour, label=name)
        sharpness.plot(rows["step"], rows["h_lambda"] / rows["h"], color=colour)
        _edge.draw_threshold(sharpness, rows["h"].iloc[0], colour)
        up = rows[rows["loss_change"] > 0]
        rises.semilogy(up["h_lambda"], up["loss_change"], "o", color=colour, markersize=3)
    loss.set(title="loss", xlabel="step of descent", ylabel="$E$")
    curvature = steps["h_lambda"] / steps["h"]
    sharpness.set_ylim(0, 1.5 * curvature.quantile(0.98))  # the first steps may be far above
    sharpness.set(title="largest eigenvalue; dashed: 2/h", xlabel="step of descent", ylabel=r"$\lambda_0$")
    rises.axvline(2, color="grey", linestyle="--", linewidth=0.8)
    rises.set(title="steps at which the loss rises", xlabel=r"$h\lambda_0$ before the step", ylabel="rise of the loss")
    loss.legend()


# The highest rate takes longest: begun first, it leaves nobody idle.
SETTINGS = {profile: _edge.Config((*_edge.SWEEP[profile][::-1], _edge.SQUARE[profile])) for profile in _edge.SWEEP}
trainings = _edge.trainings
STAND_INS = {
    "quick": f"{_edge.STAND_INS_SWEEP['quick']} The square loss is over 300 digits.",
    "cpu": f"{_edge.STAND_INS_SWEEP['cpu']} The square loss is an MLP's over 1,000 images of MNIST.",
}

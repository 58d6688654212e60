"""One run while it is trained: its directory, its state, and what is recorded of it."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from principalflow import runs
from principalflow._files import write_json
from principalflow._steps import Log, State
from principalflow.monitor import Monitor, checked_rate, in_words
from principalflow.status import Status
from principalflow.training import _schedule
from principalflow.training._optimizer import edge, optimizer
from principalflow.training._options import Options
from principalflow.training._problem import Problem

THETA = "theta"  # the name of the parameters in a checkpoint


class Member:
    """One run of a sweep; `lane` is its place among them."""

    def __init__(self, problem: Problem, o: Options, path: Path, lane: int, say: Callable[[str], None]):
        self.o, self.path, self.lane = o, path, lane
        self.status: Status | None = None
        self._problem, self._say = problem, say
        self._last: dict[str, Any] = {}
        self._is_descent = False  # whether what was last measured is against 2/h
        theta = problem.start(o)
        self.state = State(theta, optimizer(o).init(theta))
        self._monitor = Monitor(problem.objective, k=o.directions, every=1, tol=o.tolerance)
        rate = cast(float, o.learning_rate or 0.0)  # who takes none has its own
        self._rates = _schedule.rates(rate, o.schedule, o.warmup, o.steps)
        self.step, self._saved, self._run = 0, 0, _opened(path, o)
        try:
            if (found := self._run.restore()) is not None:
                self.step = self._saved = found[0]
                self._restore(found[1])
                say(f"{path} goes on at step {self.step}.")
            write_json(path / runs.CONFIG, o.config())  # more steps; not before it is known that the run goes on
        except BaseException as error:
            self._run.close(Status.INTERRUPTED, str(error))
            raise

    def arguments(self, count: int, at_once: int) -> tuple[State, jax.Array, jax.Array | None]:
        """Returns the state, rates and batches of the next `count` steps, with room for `at_once`."""
        rates = np.zeros(at_once)
        rates[:count] = self._rates[self.step : self.step + count]
        batches = None
        if self.o.batch_size is not None:
            chosen = [batch(self.o, self._problem.samples, self.step + i) for i in range(count)]
            batches = np.zeros((at_once, self.o.batch_size), np.int32)
            batches[:count] = chosen
            batches = jnp.asarray(batches)
        return self.state, jnp.asarray(rates, self.state.theta.dtype), batches

    def take(self, state: State, log: Log) -> None:
        """Writes what some steps saw, and moves on to their end."""
        taken, losses, norms, rates = (np.asarray(column) for column in log[:4])
        of_batch = "batch_" if self.o.batch_size is not None else ""
        rows: list[dict[str, Any]] = [
            {"step": self.step + i, f"{of_batch}loss": losses[i], f"{of_batch}gradient_norm": norms[i]}
            | {"learning_rate": rates[i]}
            for i in range(int(taken))
        ]
        rows[0] = self._recorded(float(rates[0])) | rows[0]
        if is_due(self.step, self.o.keep_every) and np.isfinite(losses[0]):
            self._run.keep(self.step, self.state.theta)
        self._run.append(*rows)
        self._last |= rows[0] | rows[-1]
        if not np.isfinite(losses[taken - 1]):
            self.close(Status.DIVERGED, f"the loss is not finite at step {rows[-1]['step']}")
        elif self.step == self.o.steps:
            self.close(Status.COMPLETED, f"{self.o.steps} steps, the last loss is {losses[0]:.6g}")
        else:
            self.step, self.state = self.step + int(taken), state

    def words(self) -> str:
        """Returns how it stands, in a few words, once it has taken a step."""
        row = self._last
        loss = row["batch_loss"] if "batch_loss" in row else row["loss"]
        if "eigenvalue_0" not in row:
            sharpness = ""
        elif "edge" not in row:
            sharpness = f" · λ₀ {row['eigenvalue_0']:.4g}"
        elif self._is_descent:
            sharpness = f" · h λ₀ {2 * row['edge']:.3f}"
        else:
            sharpness = f" · λ₀ {row['edge']:.3f} of its threshold"
        return f"loss {loss:.4g}{sharpness} · rate {row['learning_rate']:.3g}"

    def checkpoint(self) -> None:
        """Saves all that the next steps depend on, unless that is where it started from."""
        if self.step == self._saved:
            return
        leaves = dict(zip(_names(self.state), jax.tree.leaves(self.state), strict=True))
        watched = {f"monitor_{name}": value for name, value in self._monitor.state.items()}
        self._run.checkpoint(self.step, leaves | watched)
        self._saved = self.step

    def close(self, status: Status, message: str) -> None:
        """Ends the run."""
        self.status = status
        self._run.close(status, message)
        self._say(f"{self.path} is {status}: {message.removesuffix('.')}.")

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        leaves, structure = jax.tree.flatten(self.state)
        kept = [arrays.get(name, np.zeros(0)) for name in _names(self.state)]
        if [(leaf.shape, leaf.dtype) for leaf in kept] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
            raise runs.RunError(f"the checkpoint of step {self.step} in {self.path} is not one of this training.")
        kept = [jnp.asarray(leaf) for leaf in kept]
        self.state = jax.tree.unflatten(structure, kept)
        prefix = "monitor_"
        watched = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        self._monitor.restore(watched)

    def _recorded(self, rate: float) -> dict[str, Any]:
        """Returns what else is recorded at this step."""
        row: dict[str, Any] = {}
        theta, inner = self.state
        if is_due(self.step, self.o.record_every):
            own = edge(self.o, inner, self.step, checked_rate(rate))
            self._is_descent = own.is_descent
            measured = self._monitor.observe(self.step, theta, edge=own)
            if measured is not None:
                row |= in_words(measured)
            elif self.o.batch_size is not None:
                row["loss"] = float(self._problem.objective.value(theta))
        if self.o.evaluate_every and (is_due(self.step, self.o.evaluate_every) or self.step == self.o.steps):
            row |= self._problem.evaluate(theta)
        return row


def _names(state: State) -> list[str]:
    """Returns the names of a state's arrays in a checkpoint: the parameters, and what the optimiser has."""
    return [THETA, *(f"optimizer_{i}" for i in range(len(jax.tree.leaves(state.optimizer))))]


def is_due(step: int, every: int) -> bool:
    """Whether something that is done every this many steps is due."""
    return every > 0 and step % every == 0


def batch(o: Options, samples: int, step: int) -> np.ndarray:
    """Returns the samples of a step: each epoch is a permutation of its own, cut into whole batches."""
    size = o.batch_size or samples
    epoch, position = divmod(step, samples // size)
    order = _epoch(cast(int, o.seed), epoch, samples)
    return order[position * size : (position + 1) * size]


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, samples: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(samples)


def _opened(path: Path, o: Options) -> runs.Run:
    return runs.reopen(path) if (path / runs.CONFIG).exists() else runs.create(path, o.config())

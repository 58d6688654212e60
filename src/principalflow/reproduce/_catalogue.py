"""All experiments: their words in `catalogue.toml`, each of them a module that is imported when it is asked for."""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module, resources

from principalflow._lab import Experiment

# What a module may have besides `SETTINGS`, `run`, `claims` and `draw`, and whose it is then.
_OPTIONAL = {"explore": "explore", "trainings": "trainings", "STAND_INS": "stand_ins", "SCHEMA": "schema"}


class _Catalogue(Mapping[str, Experiment]):
    """The experiments by their ids, in the order of the catalogue."""

    def __getitem__(self, name: str) -> Experiment:
        return _experiment(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_words())

    def __len__(self) -> int:
        return len(_words())


EXPERIMENTS = _Catalogue()


@functools.cache
def _words() -> dict[str, dict]:
    file = resources.files("principalflow.reproduce") / "catalogue.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


@functools.cache
def _experiment(name: str) -> Experiment:
    words = _words()[name]
    module = import_module(f"principalflow.reproduce.{name.replace('-', '_')}")
    given = {"profiles": module.SETTINGS, "run": module.run, "claims": module.claims, "draw": module.draw}
    more = {ours: getattr(module, theirs) for theirs, ours in _OPTIONAL.items() if hasattr(module, theirs)}
    return Experiment(id=name, **words | given | more)

"""Data from loaders: the loop's own draws are left alone, and the samples must be the same each time."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import SMALL, mean_square, tanh_network, tensors
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from principalflow.torch import Monitor

PAIRS = TensorDataset(*tensors(SMALL))  # 11 samples


def seeded():
    return torch.Generator().manual_seed(0)


def watched(loader):
    return Monitor(tanh_network(SMALL), mean_square, loader, k=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda g: DataLoader(PAIRS, batch_size=4, shuffle=True, generator=g),
        lambda g: DataLoader(PAIRS, batch_size=4, sampler=RandomSampler(PAIRS, generator=g)),
        lambda g: DataLoader(PAIRS, batch_sampler=BatchSampler(RandomSampler(PAIRS, generator=g), 4, False)),
    ],
    ids=["loader", "sampler", "batch sampler"],
)
def test_a_loaders_generator_is_left_as_it_was(make):
    generator, first = seeded(), [x for x, _ in make(seeded())]
    loader = make(generator)
    before = generator.get_state()
    watched(loader).observe(0, 0.1)
    assert torch.equal(generator.get_state(), before)
    assert all(torch.equal(x, y) for (x, _), y in zip(loader, first, strict=True))


def test_shuffled_samples_are_the_same_set():
    loader = DataLoader(PAIRS, batch_size=4, shuffle=True, generator=seeded())
    expected = watched(tensors(SMALL)).observe(0, 0.1)["eigenvalue_0"]
    assert watched(loader).observe(0, 0.1)["eigenvalue_0"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(shuffle=True, drop_last=True), "drop_last=True leaves out others if shuffled"),
        (dict(sampler=RandomSampler(PAIRS, replacement=True)), "RandomSampler draws others"),
        (dict(sampler=RandomSampler(PAIRS, num_samples=8)), "RandomSampler draws others"),
        (dict(sampler=WeightedRandomSampler([1.0] * 11, 11)), "WeightedRandomSampler draws others"),
        (dict(num_workers=1, persistent_workers=True), "data must be a DataLoader without persistent_workers"),
    ],
)
def test_loaders_that_are_not_the_same_each_time_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        watched(DataLoader(PAIRS, batch_size=4, **options))


@pytest.mark.parametrize("options", [dict(drop_last=True), dict(shuffle=True, drop_last=True, batch_size=11)])
def test_what_drops_the_same_samples_or_none_is_taken(options):
    assert watched(DataLoader(PAIRS, **dict(batch_size=4) | options)).observe(0, 0.1)["eigenvalue_0"] > 0


def test_batches_of_three_tensors_are_named():
    loader = DataLoader(TensorDataset(*tensors(SMALL), torch.ones(11)), batch_size=4)
    message = r"each batch of data must be a pair \(inputs, targets\) or a mapping, got a list of 3 entries"
    with pytest.raises(ValueError, match=message):
        watched(loader).observe(0, 0.1)


def test_a_dataset_is_to_be_wrapped():
    with pytest.raises(ValueError, match="got a TensorDataset: wrap it in a DataLoader"):
        watched(PAIRS)

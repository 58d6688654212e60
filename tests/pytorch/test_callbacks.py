"""The monitor in trainers: it sees what it sees in a plain loop that takes the same steps."""

import numpy as np
import pandas
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from torch import nn

from principalflow.torch import Monitor

RANDOM = torch.Generator().manual_seed(0)
BATCHES = [tuple(torch.randn(4, size, generator=RANDOM).double() for size in (3, 2)) for _ in range(4)]
DATA = tuple(torch.cat(parts) for parts in zip(*BATCHES, strict=True))
loss_of = nn.functional.mse_loss


class Network(nn.Module):
    """A network that computes its own loss where it is given labels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()

    def forward(self, x, labels=None):
        outputs = self.layers(x)
        return outputs if labels is None else {"loss": loss_of(outputs, labels), "logits": outputs}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def rows_of_a_plain_loop(steps, optimizer, clip=None):
    """Rows of a loop, each of whose steps takes several batches."""
    model = Network()
    optimizer = optimizer(model)
    monitor = Monitor(model, loss_of, DATA, every=2)
    monitor.attach(optimizer, steps=True)
    monitor.observe(0)
    for step, batches in enumerate(steps, 1):
        optimizer.zero_grad()
        (sum(loss_of(model(x), y) for x, y in batches) / len(batches)).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip) if clip else None
        optimizer.step()
        monitor.observe(step, batch=batches, gradient_norm=norm)
    return monitor.rows


def assert_same(rows, expected):
    assert [list(row) for row in rows] == [list(row) for row in expected]
    for row, other in zip(rows, expected, strict=True):
        for name, value in other.items():
            if isinstance(value, float):
                # Losses and gradients of several batches are summed in another order.
                np.testing.assert_allclose(row[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
            else:
                assert str(row[name]) == str(value), name


class Logger:
    def __init__(self):
        self.logged = {}

    def log_metrics(self, metrics, step):
        self.logged[step] = metrics


class Module(nn.Module):
    automatic_optimization = True


class Trainer:
    """As much of Lightning's trainer as a callback sees."""

    world_size, is_global_zero, accumulate_grad_batches, gradient_clip_val = 1, True, 1, None

    def __init__(self, callback, **options):
        self.callback, self.optimizers, self.global_step, self.loggers = callback, [], 0, [Logger()]
        vars(self).update(options)

    def call(self, hook, *arguments):
        getattr(self.callback, hook)(self, Module(), *arguments)

    def fit(self, model, batches):
        (optimizer,) = self.optimizers = [sgd(model)]
        for hook in ("setup", "on_fit_start", "on_sanity_check_start", "on_train_start", "on_train_epoch_start"):
            self.call(hook)
        for i, (x, y) in enumerate(batches):
            self.call("on_train_batch_start", (x, y), i)
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.global_step += 1
            self.call("on_train_batch_end", {"loss": loss.detach()}, (x, y), i)
        for hook in ("on_train_epoch_end", "on_save_checkpoint", "on_train_end", "teardown"):
            self.call(hook)


def watched(**options):
    return Monitor(Network(), loss_of, DATA, every=2, **options)


def fit_stand_in(steps=True, **options):
    monitor = watched()
    trainer = Trainer(monitor.callback(steps=steps), **options)
    trainer.fit(monitor._of.model, BATCHES)
    return monitor, trainer


def test_a_trainers_rows_are_those_of_a_loop():
    monitor, _ = fit_stand_in()
    assert_same(monitor.rows, rows_of_a_plain_loop([[batch] for batch in BATCHES], sgd))


def test_rows_begin_at_step_0_and_steps_may_be_left_out():
    monitor, _ = fit_stand_in(steps=False)
    assert [row["step"] for row in monitor.rows] == [0, 2, 4]
    assert not any("batch_loss" in row for row in monitor.rows)


def test_a_trainers_loggers_get_the_rows():
    monitor, trainer = fit_stand_in()
    (logger,) = trainer.loggers
    assert list(logger.logged) == [row["step"] for row in monitor.rows]
    assert logger.logged[2]["principalflow/edge"] == monitor.table().set_index("step")["edge"][2]


def test_events_are_printed_as_they_come_and_the_summary_at_the_end(capsys):
    monitor = watched()
    Trainer(monitor.callback()).fit(monitor._of.model.requires_grad_(), [(x, 100 * y) for x, y in BATCHES])
    assert monitor.events
    assert capsys.readouterr().out == "\n".join([*map(str, monitor.events), monitor.summary()]) + "\n"


def test_steps_of_several_processes_are_not_watched():
    monitor, _ = fit_stand_in(world_size=2)
    assert not any("batch_loss" in row for row in monitor.rows)


def test_only_the_first_process_measures(capsys):
    monitor, _ = fit_stand_in(is_global_zero=False)
    assert monitor.rows == []
    assert capsys.readouterr().out == ""


def test_a_loss_of_training_step_that_is_not_the_monitors_is_told_once():
    monitor = Monitor(network := Network(), lambda outputs, y: 2 * loss_of(outputs, y), DATA, every=2)
    with pytest.warns(UserWarning, match="loss of training_step isn't the monitor's") as told:
        Trainer(monitor.callback()).fit(network, BATCHES)
    assert len(told) == 1


def test_a_trainer_that_fails_closes_the_monitor_and_has_its_summary(tmp_path, capsys):
    monitor = watched(to=tmp_path)
    trainer = Trainer(monitor.callback(), optimizers=[sgd(monitor._of.model)])
    trainer.call("on_train_start")
    trainer.call("on_exception", KeyError("x"))
    assert '"interrupted"' in (tmp_path / "status.json").read_text()
    assert monitor.summary() in capsys.readouterr().out


def test_hooks_that_a_monitor_has_no_use_for_do_nothing():
    callback = watched().callback()
    assert callback.on_validation_end(None, None) is None
    assert not hasattr(callback, "something_else")


def test_what_holds_is_not_reported_again_by_a_training_that_goes_on():
    x, y = DATA

    def steep():
        model = Network()
        optimizer = torch.optim.SGD(model.parameters(), lr=100.0)
        return Monitor(model, loss_of, (x, y)), Trainer(None, optimizers=[optimizer])

    (first, trainer), (second, other) = steep(), steep()
    trainer.callback, other.callback = first.callback(), second.callback()
    trainer.call("on_train_start")
    other.callback.load_state_dict(trainer.callback.state_dict())
    other.call("on_train_start")
    assert [event.kind for event in first.events]
    assert second.events == []


def fit(monitor, optimizer=sgd, callback=None, automatic=True, **options):
    """Lightning's own trainer, after an epoch."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.automatic_optimization = monitor._of.model, automatic

        def training_step(self, batch, i):
            loss = loss_of(self.network(batch[0]), batch[1])
            if automatic:
                return loss
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
            self.optimizers().zero_grad()

        def configure_optimizers(self):
            return optimizer(self.network)

    resume = options.pop("ckpt_path", None)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    options = dict(accelerator="cpu", max_epochs=1, precision="64-true") | quiet | options
    trainer = lightning.Trainer(**options, callbacks=[callback or monitor.callback()])
    trainer.fit(Lit(), torch.utils.data.DataLoader(BATCHES, batch_size=None), ckpt_path=resume)
    return trainer


def of_a_trainer(test):
    """Marks a test of a real trainer: they take seconds to import, and warn of what they do themselves."""
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore")(test))


@of_a_trainer
@pytest.mark.parametrize("optimizer", [sgd, adamw])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_lightnings_rows_are_those_of_a_loop(optimizer, clip):
    monitor = watched()
    fit(monitor, optimizer, gradient_clip_val=clip)
    assert_same(monitor.rows, rows_of_a_plain_loop([[batch] for batch in BATCHES], optimizer, clip))


@of_a_trainer
def test_lightning_accumulates_batches():
    monitor = watched()
    fit(monitor, adamw, accumulate_grad_batches=2)
    assert_same(monitor.rows, rows_of_a_plain_loop([BATCHES[:2], BATCHES[2:]], adamw))


@of_a_trainer
def test_a_step_of_fewer_batches_than_its_gradient_is_divided_by_is_not_watched():
    monitor = watched()
    fit(monitor, accumulate_grad_batches=3)
    assert [(row["step"], "batch_loss" in row) for row in monitor.rows] == [(0, False), (1, True), (2, False)]


@of_a_trainer
def test_a_module_that_steps_by_itself_has_its_curvature_measured():
    monitor = watched()
    fit(monitor, automatic=False)
    assert [(row["step"], "batch_loss" in row) for row in monitor.rows] == [(0, False), (2, False), (4, False)]


@of_a_trainer
def test_lightnings_own_logger_gets_the_rows(tmp_path):
    loggers, monitor = pytest.importorskip("pytorch_lightning.loggers"), watched()
    logger = loggers.CSVLogger(tmp_path)
    fit(monitor, logger=logger)
    logger.save()
    table = pandas.read_csv(next(tmp_path.rglob("metrics.csv")))
    assert table["step"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(table["principalflow/eigenvalue_0"], monitor.table()["eigenvalue_0"], rtol=1e-12)


@of_a_trainer
def test_a_lightning_training_goes_on_from_its_checkpoint(tmp_path):
    def steep(model):
        return torch.optim.SGD(model.parameters(), lr=10.0)

    first, second = watched(), watched()
    fit(first, steep).save_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert state["callbacks"]["principalflow.torch.Monitor"]
    fit(second, steep, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
    assert [row["step"] for row in second.rows] == [4, 5, 6, 7, 8]
    assert "above" in [event.kind for event in first.events]
    assert "above" not in [event.kind for event in second.events if event.step == 4]


@of_a_trainer
def test_a_lightning_trainer_that_fails_has_its_summary(capsys):
    monitor = watched()

    def failing(model):
        optimizer = sgd(model)
        optimizer.register_step_post_hook(lambda *_: 1 / 0)
        return optimizer

    with pytest.raises(ZeroDivisionError):
        fit(monitor, failing)
    assert monitor.summary() in capsys.readouterr().out


def train(tmp_path, monitor, optimizer=sgd, listens=True, per_batch=4, **options):
    """Hugging Face's own trainer, after four steps at most."""
    transformers = pytest.importorskip("transformers")
    model = monitor._of.model
    data = [{"x": x, "labels": y} for x, y in zip(*DATA, strict=True)]
    plain = dict(
        output_dir="unused", report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, max_grad_norm=0
    )
    fixed = dict(per_device_train_batch_size=per_batch, train_sampling_strategy="sequential", num_train_epochs=1)
    arguments = transformers.TrainingArguments(**plain | fixed | dict(logging_steps=1) | options)
    constant = torch.optim.lr_scheduler.LambdaLR(chosen := optimizer(model), lambda step: 1.0)
    trainer = transformers.Trainer(model, arguments, train_dataset=data, optimizers=(chosen, constant))
    trainer.add_callback(monitor.trainer_callback(trainer) if listens else monitor.trainer_callback())
    trainer.train()
    return trainer


def own(**options):
    """A monitor of the loss that the network computes itself."""
    return Monitor(Network(), None, dict(zip(("x", "labels"), DATA, strict=True)), every=2, **options)


@of_a_trainer
@pytest.mark.parametrize("optimizer", [sgd, adamw])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_hugging_faces_rows_are_those_of_a_loop(tmp_path, optimizer, clip):
    monitor = own()
    train(tmp_path, monitor, optimizer, max_grad_norm=clip or 0)
    assert_same(monitor.rows, rows_of_a_plain_loop([[batch] for batch in BATCHES], optimizer, clip))


@of_a_trainer
def test_hugging_face_accumulates_batches(tmp_path):
    monitor = own()
    train(tmp_path, monitor, adamw, gradient_accumulation_steps=2)
    assert_same(monitor.rows, rows_of_a_plain_loop([BATCHES[:2], BATCHES[2:]], adamw))


@of_a_trainer
def test_hugging_faces_log_has_the_latest_of_the_monitor(tmp_path):
    monitor = own()
    trainer = train(tmp_path, monitor, logging_steps=2)
    rows, history = monitor.table().set_index("step"), trainer.state.log_history
    assert [entry["step"] for entry in history if "principalflow/edge" in entry] == [2, 4]
    assert history[0]["principalflow/edge"] == rows["edge"][2]
    assert history[0]["principalflow/realised_edge"] == rows["realised_edge"][2]
    assert history[0]["loss"] > 0


@of_a_trainer
def test_hugging_faces_log_says_when_the_curvature_was_measured_and_leaves_out_an_edge_that_means_nothing(tmp_path):
    history = train(tmp_path, own(), adamw).state.log_history[:4]
    assert [entry.get("principalflow/measured_at") for entry in history] == [1, None, 3, None]
    assert not any("principalflow/edge" in entry for entry in history)


@of_a_trainer
def test_without_the_trainer_the_curvature_alone_is_measured(tmp_path):
    monitor = own()
    trainer = train(tmp_path, monitor, listens=False)
    assert [(row["step"], "batch_loss" in row) for row in monitor.rows] == [(0, False), (2, False), (4, False)]
    assert not any("principalflow" in name for entry in trainer.state.log_history for name in entry)


@of_a_trainer
def test_hugging_faces_trainer_is_left_as_it_was(tmp_path, capsys):
    monitor = own()
    trainer = train(tmp_path, monitor)
    assert not {"log", "compute_loss"} & set(vars(trainer))
    assert "clip_grad_norm_" not in vars(trainer.accelerator)
    assert all(p.grad is None for p in monitor._of.model.parameters())
    assert monitor.summary() in capsys.readouterr().out


@of_a_trainer
def test_an_optimiser_that_accelerate_prepared_is_watched():
    accelerate = pytest.importorskip("accelerate")
    accelerator, monitor = accelerate.Accelerator(cpu=True), watched()
    optimizer = accelerator.prepare(sgd(monitor._of.model))
    monitor.attach(optimizer, steps=True)
    model = accelerator.prepare(monitor._of.model)
    monitor.observe(0)
    for step, (x, y) in enumerate(BATCHES, 1):
        loss = loss_of(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        monitor.observe(step, batch=(x, y), loss=loss)
        optimizer.zero_grad()
    assert_same(monitor.rows, rows_of_a_plain_loop([[batch] for batch in BATCHES], sgd))

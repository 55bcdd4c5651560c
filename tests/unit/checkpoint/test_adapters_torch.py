"""A resumable DataLoader, Lightning and the Hugging Face Trainer: interrupted anywhere, they end with the same bits."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal

import pytest

import windfall.checkpoint as ckpt
from tests.unit.checkpoint.test_frameworks_values import through


def lacks(*names: str) -> bool:
    return any(importlib.util.find_spec(name) is None for name in names)


pytestmark = [
    pytest.mark.skipif(lacks("torch"), reason="PyTorch is not installed"),
    # Trainers warn about what they find (few workers, no logger, deprecated calls of their own); none of it is ours.
    pytest.mark.filterwarnings("ignore"),
]


class Crash(Exception):
    """An interruption without notice."""


def crash(run: ckpt.Run, step: int) -> None:
    """Dies at a boundary that is saved, so that the test knows where the next run begins."""
    run.snapshot(step).result(30)
    raise Crash


# ------------------------------------------------------------------------------------------------- ResumableLoader


def loader(workers=0, generator=None, drop_last=False):
    import torch

    from windfall.checkpoint.adapters.torch_loader import ResumableLoader

    dataset = torch.utils.data.TensorDataset(torch.arange(22))
    return ResumableLoader(
        dataset, batch_size=4, shuffle=True, num_workers=workers, generator=generator, drop_last=drop_last
    )


def seen(batches):
    return [batch[0].tolist() for batch in batches]


@pytest.mark.parametrize("own_generator", [False, True], ids=["global generator", "own generator"])
@pytest.mark.parametrize("stop_after", [1, 3, 5, 6])
def test_the_rest_of_an_epoch_follows_in_the_same_order(own_generator, stop_after):
    import torch

    def a_loader():
        return loader(generator=torch.Generator().manual_seed(3) if own_generator else None)

    torch.manual_seed(1)
    whole = a_loader()
    epochs = [seen(whole), seen(whole), seen(whole)]
    assert epochs[0] != epochs[1]

    torch.manual_seed(1)
    first = a_loader()
    begun = seen(first)
    iterator = iter(first)
    begun_second = [next(iterator)[0].tolist() for _ in range(stop_after)]
    boundary = torch.get_rng_state()
    kept_generator = None if first.generator is None else first.generator.get_state()
    second = a_loader()
    through(first, second)
    torch.manual_seed(99)
    torch.set_rng_state(boundary)
    if kept_generator is not None:
        second.generator.set_state(kept_generator)
    rest = [] if stop_after == 6 else seen(second)
    assert [begun, begun_second + rest, seen(second)] == epochs


def plain_loader(**options):
    import torch

    dataset = torch.utils.data.TensorDataset(torch.arange(22))
    return torch.utils.data.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})


@pytest.mark.parametrize("workers", [0, 1])
def test_a_plain_loader_that_is_tracked_goes_on_where_it_was(tmp_path, workers):
    import torch

    def epoch(place, stop_after=None):
        torch.manual_seed(7)
        data, batches = plain_loader(num_workers=workers), []
        run = ckpt.open(tmp_path / place, every=1000)
        run.track(data=data)
        step = run.resume()
        try:
            for batch in data:
                batches.append(batch[0].tolist())
                step += 1
                run.step(step)
                if step == stop_after:
                    crash(run, step)
        except Crash:
            pass
        run.done(save=False)
        return batches

    whole = epoch("whole")
    begun = epoch("interrupted", 2)
    assert len(begun) == 2
    assert begun + epoch("interrupted") == whole


def test_a_loader_whose_position_cannot_be_stored_says_at_once_what_to_write(tmp_path):
    import torch

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    class Own(torch.utils.data.DataLoader):
        pass

    begun = plain_loader(num_workers=1, persistent_workers=True)
    iter(begun)
    run = ckpt.open(tmp_path)
    for name, data, words in (
        ("stream", torch.utils.data.DataLoader(Stream()), "over an iterable dataset"),
        ("own", Own([1, 2]), "own = ResumableLoader(dataset, batch_size=32, shuffle=True)"),
        ("single", plain_loader(batch_size=None, shuffle=False), "single = ResumableLoader("),
        ("begun", begun, "Track it before its first batch"),
    ):
        with pytest.raises(ckpt.NotTrackable, match=rf"run\.track\({name}=\.\.\.\): .*{re.escape(words)}"):
            run.track(**{name: data})
    run.done()


def test_batches_fetched_ahead_by_workers_are_not_lost():
    import torch

    torch.manual_seed(5)
    whole = seen(loader(workers=1))
    torch.manual_seed(5)
    first = loader(workers=1)
    iterator = iter(first)
    begun = [next(iterator)[0].tolist() for _ in range(2)]
    second = loader(workers=1)
    through(first, second)
    assert begun + seen(second) == whole
    del iterator


def test_skipping_reads_no_data_and_leaves_the_generators_alone():
    import torch

    from windfall.checkpoint.adapters.torch_loader import ResumableLoader

    class Counted(torch.utils.data.Dataset):
        reads = 0

        def __len__(self):
            return 40

        def __getitem__(self, index):
            self.reads += 1
            return index + random.random()

    first = ResumableLoader(Counted(), batch_size=4, shuffle=True)
    iterator = iter(first)
    for _ in range(8):
        next(iterator)
    dataset = Counted()
    second = ResumableLoader(dataset, batch_size=4, shuffle=True)
    through(first, second)
    random.seed(4)
    torch.manual_seed(4)
    state = (random.getstate(), torch.get_rng_state().tolist())
    rest = iter(second)
    assert (random.getstate(), torch.get_rng_state().tolist()) == state
    assert dataset.reads == 0
    assert len(list(rest)) == 2
    assert dataset.reads == 8


def test_the_end_of_an_epoch_with_a_dropped_batch_is_an_end():
    first = loader(drop_last=True)
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    assert first.state_dict() == {"yielded": 0, "begun_at": None}


# ------------------------------------------------------------------------------------------------------- Lightning


def fit_lightning(directory, crash_at=None, terminate_in_batch=None, validate=False, accumulate=1):
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything

    from windfall.checkpoint.adapters.lightning import CheckpointCallback

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
            )

        def training_step(self, batch, index):
            inputs = batch[0].float().unsqueeze(1) / 22
            return (self.net(inputs) - inputs).square().mean()

        def validation_step(self, batch, index):
            self.log("val", self.net(batch[0].float().unsqueeze(1)).mean())

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [
                {"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97), "interval": "step"}
            ]

    class CrashAt(Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == crash_at:
                crash(run, crash_at)

        def on_train_batch_start(self, trainer, module, batch, index):
            if (trainer.current_epoch, index) == terminate_in_batch:
                os.kill(os.getpid(), signal.SIGTERM)

    seed_everything(1, verbose=False)
    model = Model()
    run = ckpt.open(directory, every=1)
    try:
        trainer = Trainer(
            max_epochs=3,
            accumulate_grad_batches=accumulate,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[CheckpointCallback(run), CrashAt()],
        )
        trainer.fit(model, loader(), val_dataloaders=loader() if validate else None)
    finally:
        run.done(save=False)
    assert trainer.global_step == 18 // accumulate
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


@pytest.mark.skipif(lacks("lightning"), reason="Lightning is not installed")
def test_lightning_interrupted_three_times_ends_with_the_same_weights(tmp_path):
    options = {"validate": True, "accumulate": 2}
    uninterrupted = fit_lightning(tmp_path / "whole", **options)
    with pytest.raises(Crash):
        fit_lightning(tmp_path / "parts", crash_at=2, **options)
    with pytest.raises(SystemExit, match="143"):  # within a gradient that is being accumulated
        fit_lightning(tmp_path / "parts", terminate_in_batch=(1, 2), **options)
    assert max(place.name for place in (tmp_path / "parts").glob("step-*")) == "step-000000005"
    with pytest.raises(Crash):
        fit_lightning(tmp_path / "parts", crash_at=6, **options)  # the end of an epoch
    assert fit_lightning(tmp_path / "parts", **options) == uninterrupted


# ------------------------------------------------------------------------------------------------ Hugging Face


def train_transformers(directory, crash_at=None, damage=False, accumulate=1):
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from windfall.checkpoint.adapters.transformers import train

    class CrashAt(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == crash_at:
                crash(run, crash_at)

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=2,
    )
    numbers = torch.Generator().manual_seed(1)
    dataset = [
        {"input_ids": torch.randint(0, 30, (6,), generator=numbers), "labels": index % 2}
        for index in range(22)
    ]
    if damage:
        newest = max(directory.glob("step-*"))
        for file in newest.iterdir():
            if file.suffix != ".json":
                file.write_bytes(b"x" * file.stat().st_size)
    run = ckpt.open(directory, every=1)
    try:
        trainer = Trainer(
            BertForSequenceClassification(config),
            TrainingArguments(
                output_dir=str(directory.parent / "out"),
                num_train_epochs=3,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=accumulate,
                learning_rate=0.01,
                eval_strategy="steps",
                eval_steps=5,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                seed=3,
            ),
            train_dataset=dataset,
            eval_dataset=dataset,
        )
        output = train(trainer, run, callbacks=[CrashAt()])
    finally:
        run.done(save=False)
    assert output.global_step == 18 // accumulate
    return {name: tensor.numpy().tobytes() for name, tensor in trainer.model.state_dict().items()}


@pytest.mark.skipif(
    lacks("transformers", "accelerate"), reason="transformers and accelerate are not installed"
)
def test_a_hugging_face_trainer_interrupted_twice_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    uninterrupted = train_transformers(tmp_path / "whole")
    with pytest.raises(Crash):
        train_transformers(tmp_path / "parts", crash_at=5)  # a step that is evaluated
    with pytest.raises(Crash):
        train_transformers(tmp_path / "parts", crash_at=12)  # the end of an epoch
    assert train_transformers(tmp_path / "parts", damage=True) == uninterrupted

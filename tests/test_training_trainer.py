"""RoleTrainer: which rows of the table learn, the loss, the order of the rows, checkpoints."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

from rolewise.collation import RoleCollator, pack
from rolewise.training.checkpoints import checkpoints, is_complete, mark_complete, newest_complete, remove_incomplete
from rolewise.training.packing import require_packing
from rolewise.training.trainer import EpochSampler, RoleTrainer
from tests.models import FAMILIES, tiny_model
from tests.training_rows import DATA, OUTPUT, SYSTEM, USER, random_rows, role_dataset

COLLATOR = RoleCollator(pad_token_id=0)
CHECKPOINTING = (
    "activation_checkpointing" if hasattr(TrainingArguments, "activation_checkpointing") else "gradient_checkpointing"
)
GOLDEN = Path(__file__).parent / "golden" / "training_loss.json"


def arguments(directory: Path, **options: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(directory),
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 2,
        "max_grad_norm": 0.0,
    }
    return TrainingArguments(**(defaults | options))


class Gradients(TrainerCallback):
    """Keeps the table's gradient of each step."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for name, parameter in kwargs["model"].named_parameters():
            if "segment_embedding" in name and parameter.requires_grad:
                self.seen.append(parameter.grad.clone())


def trained(
    model: torch.nn.Module,
    rows: list[dict[str, list[int]]],
    directory: Path,
    *,
    packed: bool = False,
    table_lr_multiple: float = 50.0,
    **options: Any,
) -> tuple[RoleTrainer, Gradients]:
    gradients = Gradients()
    dataset = role_dataset(rows)
    if packed:
        dataset.pack(64)
    trainer = RoleTrainer(
        model=model,
        args=arguments(directory, **options),
        train_dataset=dataset,
        data_collator=RoleCollator(pad_token_id=0, packed=packed),
        callbacks=[gradients],
        table_lr_multiple=table_lr_multiple,
    )
    trainer.train()
    return trainer, gradients


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["plain", "checkpointing", "packed"])
def test_only_rows_that_occur_get_gradient(family: str, mode: str, tmp_path: Path) -> None:
    rows = random_rows(4, segments=(USER,))
    options = {CHECKPOINTING: True} if mode == "checkpointing" else {}
    _, gradients = trained(
        tiny_model(family),
        rows,
        tmp_path,
        packed=mode == "packed",
        max_steps=1,
        per_device_train_batch_size=4,
        **options,
    )
    (gradient,) = gradients.seen
    moved = gradient.abs().sum(-1) > 0
    assert moved.tolist() == [segment in (USER, OUTPUT) for segment in (SYSTEM, USER, DATA, OUTPUT)]


def test_table_has_its_own_rate_and_no_decay(tmp_path: Path) -> None:
    model = tiny_model("llama")
    trainer = RoleTrainer(
        model=model,
        args=arguments(tmp_path, weight_decay=0.1, learning_rate=1e-4),
        train_dataset=role_dataset(random_rows()),
        data_collator=COLLATOR,
        table_lr_multiple=20.0,
    )
    trainer.create_optimizer_and_scheduler(10)
    groups = trainer.optimizer.param_groups
    (group,) = [g for g in groups if any(p is model.segment_embedding.weight for p in g["params"])]
    assert [p.shape for p in group["params"]] == [model.segment_embedding.weight.shape]
    assert group["initial_lr"] == pytest.approx(2e-3)
    assert group["weight_decay"] == 0.0
    everything = [id(p) for g in groups for p in g["params"]]
    assert sorted(everything) == sorted(id(p) for p in model.parameters())


def test_accumulated_batches_equal_one_batch(tmp_path: Path) -> None:
    """Batches with unequal numbers of labels: the loss is the mean over tokens, not over batches."""
    rows = random_rows(8, longest=9)
    losses, weights = [], []
    for size, steps in ((8, 1), (2, 4), (1, 8)):
        trainer, _ = trained(
            tiny_model("llama"),
            rows,
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            num_train_epochs=2,
        )
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
        weights.append(trainer.model.segment_embedding.weight.detach().clone())
    for other in (1, 2):
        assert losses[other] == pytest.approx(losses[0], abs=1e-5)
        torch.testing.assert_close(weights[other], weights[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_give_the_loss_of_the_rows_alone(family: str) -> None:
    import rolewise as rw

    model = tiny_model(family)
    rows = random_rows(9, longest=9)
    require_packing(model)
    packed = pack(rows, 64)
    assert len(packed) < len(rows)
    with torch.no_grad():
        alone = sum(rw.labelled_loss(model, COLLATOR([row]), num_items=1).item() for row in rows)
        together = rw.labelled_loss(model, RoleCollator(pad_token_id=0, packed=True)(packed), num_items=1).item()
    assert together == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_free_batches_train_and_evaluate_as_padded_ones(family: str, tmp_path: Path) -> None:
    rows = random_rows(7, longest=9)  # an odd number: the last batch of the evaluation is smaller
    results = []
    for padding_free in (False, True):
        collator = RoleCollator(pad_token_id=0, padding_free=padding_free)
        joined = "position_ids" in collator(rows)
        assert joined is padding_free
        trainer = RoleTrainer(
            model=tiny_model(family),
            args=arguments(tmp_path, num_train_epochs=2, per_device_train_batch_size=3, per_device_eval_batch_size=2),
            train_dataset=role_dataset(rows),
            eval_dataset=role_dataset(rows),
            data_collator=collator,
        )
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        results.append([before, *losses, trainer.evaluate()["eval_loss"]])
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def test_packing_is_refused_where_documents_would_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    backbone = model.base_model
    forward = backbone.forward

    def with_a_mask(*args: Any, **kwargs: Any) -> Any:  # a mask of ones makes transformers attend across documents
        return forward(*args, attention_mask=torch.ones_like(kwargs["input_ids"]), **kwargs)

    monkeypatch.setattr(backbone, "forward", with_a_mask)
    with pytest.raises(ValueError, match=r"mixes packed documents.*group_by_length"):
        require_packing(model)


def test_golden_loss_curve(tmp_path: Path) -> None:
    """Twenty steps on a tiny model. To accept a change, delete the file, run the test twice, and say why."""
    trainer, _ = trained(
        tiny_model("llama"), random_rows(8), tmp_path, max_steps=20, learning_rate=1e-2, lr_scheduler_type="cosine",
        warmup_steps=3, max_grad_norm=1.0, per_device_train_batch_size=4,
    )  # fmt: skip
    curve = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps([round(loss, 6) for loss in curve]) + "\n")
        pytest.fail(f"{GOLDEN} was missing and is written now; run again")
    assert curve == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-3)
    assert curve[-1] < 0.7 * curve[0]


def test_evaluation_loss_is_the_mean_over_tokens(tmp_path: Path) -> None:
    import rolewise as rw

    model = tiny_model("llama")
    rows = random_rows(7, longest=9)
    trainer = RoleTrainer(
        model=model, args=arguments(tmp_path, per_device_eval_batch_size=3), data_collator=COLLATOR,
        train_dataset=role_dataset(rows), eval_dataset=role_dataset(rows),
    )  # fmt: skip
    expected = rw.labelled_loss(model.eval(), COLLATOR(rows)).item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert model.training is False


@pytest.mark.parametrize("group", [None, 8])
def test_order_depends_on_seed_and_epoch_alone(group: int | None) -> None:
    dataset = role_dataset(random_rows(50, longest=20))

    def order(seed: int, epoch: int) -> list[int]:
        torch.manual_seed(random.randrange(1000))  # the global state must not matter
        sampler = EpochSampler(dataset, seed=seed, shuffle=True, group=group)
        sampler.epoch = epoch
        return list(sampler)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    assert sorted(order(1, 0)) == list(range(50))
    if group:
        lengths = dataset.lengths()
        spread = [
            max(lengths[i] for i in step) - min(lengths[i] for i in step)
            for step in (order(1, 0)[at : at + group] for at in range(0, 48, group))
        ]
        assert sum(spread) / len(spread) < (max(lengths) - min(lengths)) / 2


def test_a_failed_save_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RoleTrainer, "_save_rng_state", full)
    with pytest.raises(OSError, match=r"the disk is full.*keep_checkpoints") as caught:
        trained(tiny_model("llama"), random_rows(), tmp_path, save_strategy="steps", save_steps=1, max_steps=2)
    assert caught.value.errno == errno.ENOSPC
    assert checkpoints(tmp_path) == []


def test_checkpoints_rotate_and_are_marked(tmp_path: Path) -> None:
    trained(tiny_model("llama"), random_rows(), tmp_path, save_strategy="steps", save_steps=1, max_steps=3)
    (last,) = checkpoints(tmp_path)
    assert last.name == "checkpoint-3"
    assert is_complete(last)
    assert not (last / "training_args.bin").exists()
    weights = last / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert newest_complete(tmp_path) is None, "a file that was cut"


def test_half_written_checkpoints_are_removed(tmp_path: Path) -> None:
    for step in (2, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "model.safetensors").write_text("weights")
    mark_complete(tmp_path / "checkpoint-2")
    assert newest_complete(tmp_path) == tmp_path / "checkpoint-2"
    assert remove_incomplete(tmp_path) == [tmp_path / "checkpoint-10"]
    assert checkpoints(tmp_path) == [tmp_path / "checkpoint-2"]


def test_refusals(tmp_path: Path) -> None:
    from tests.models import plain_model

    with pytest.raises(ValueError, match=r"segment table.*rolewise\.load_model"):
        RoleTrainer(model=plain_model("llama"), args=arguments(tmp_path), data_collator=COLLATOR)
    with pytest.raises(ValueError, match="RoleCollator"):
        RoleTrainer(model=tiny_model("llama"), args=arguments(tmp_path))

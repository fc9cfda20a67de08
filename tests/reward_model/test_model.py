"""The value-anchored reward model: scores whatever stands beside them, a folder for plain Transformers, gradients."""

from pathlib import Path

import pytest
import torch
from rewards_world import reward_model
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification

from judgefree.errors import JudgefreeError
from judgefree.reward_model import losses
from judgefree.reward_model.learner import Learner
from judgefree.reward_model.model import load_reward_model, save_reward_model

PROMPT = [{"role": "user", "content": "3 + 4 = ?"}]
TEXTS = ["#### 7", "3 + 4 = 7\n#### 7", "sure sure\n3 + 4 = 7\n#### 7", "#### 2"]


def rows(model) -> list[list[int]]:  # type: ignore[no-untyped-def]
    return [model.encode([*PROMPT, {"role": "assistant", "content": text}])[0] for text in TEXTS]


def test_neither_batch_nor_padding_changes_a_score(policy: Path) -> None:
    model = reward_model(policy)
    alone = [model.rewards([row]).item() for row in rows(model)]
    assert len(set(alone)) == 4
    for tokens in (1, 20, 10_000):
        assert model.read(model.rewards, rows(model), tokens) == pytest.approx(alone, abs=1e-5)


def test_the_folder_loads_in_plain_transformers(policy: Path, tmp_path: Path) -> None:
    model = reward_model(policy)
    save_reward_model(model, tmp_path)
    plain, loading = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    read = rows(model)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in read], batch_first=True)
    with torch.no_grad():
        theirs = plain(input_ids=ids, attention_mask=(ids != 0).long()).logits[:, 0].tolist()
    assert theirs == pytest.approx(model.read(model.rewards, read, 1000), abs=1e-5)
    again = load_reward_model(tmp_path)
    prompts = [model.encode(PROMPT)[0]]
    assert again.read(again.values, prompts, 99) == model.read(model.values, prompts, 99) != [0.0]
    with safe_open(tmp_path / "value_head.safetensors", framework="pt") as file:
        assert sorted(file.keys()) == ["bias", "weight"] and file.get_tensor("weight").dtype == torch.float32


def test_a_policy_is_no_value_anchored_reward_model(policy: Path) -> None:
    with pytest.raises(JudgefreeError, match="value_head"):
        load_reward_model(policy)


def test_a_long_message_is_cut_inside_and_the_end_stays(policy: Path) -> None:
    model = reward_model(policy, max_tokens=16)
    ids, cut = model.encode([*PROMPT, {"role": "assistant", "content": "sure " * 40}])
    whole, uncut = reward_model(policy).encode([*PROMPT, {"role": "assistant", "content": "sure"}])
    assert cut and not uncut and len(ids) <= 16 and ids[-1] == whole[-1] == 1


def test_each_loss_moves_its_own_part(policy: Path) -> None:
    model = reward_model(policy)
    scores, values = model.rewards(rows(model))[None], model.values([model.encode(PROMPT)[0]])
    signs = torch.tensor([[True, True, False, False]])
    losses.reward_loss(scores, values, signs, ~signs).backward()
    assert all(p.grad is None for p in model.value_head.parameters())
    assert all(p.grad is not None for p in model.backbone.parameters())
    assert model.reward_head.weight.grad.abs().sum() > 0  # type: ignore[union-attr]
    model.zero_grad(set_to_none=True)
    scores, values = model.rewards(rows(model))[None], model.values([model.encode(PROMPT)[0]])
    losses.value_loss(values, scores, torch.ones_like(signs)).backward()
    assert all(p.grad is None for p in model.classifier.parameters())
    assert model.value_head.weight.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_carried_gradients_are_those_of_one_pass(policy: Path) -> None:
    signs = torch.tensor([[True, True, False, False]])
    direct, carried = reward_model(policy), reward_model(policy)
    value = direct.values([direct.encode(PROMPT)[0]])
    losses.reward_loss(direct.rewards(rows(direct))[None], value, signs, ~signs).backward()
    learner = Learner(carried, 1e-3, 1e-3, batch_tokens=20)
    scores = torch.tensor([learner.rewards(rows(carried))]).requires_grad_()
    (gradient,) = torch.autograd.grad(losses.reward_loss(scores, value, signs, ~signs), scores)
    learner.carry_rewards(rows(carried), gradient[0])
    for one, other in zip(direct.classifier.parameters(), carried.classifier.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)  # type: ignore[arg-type]


def test_a_learner_goes_on_from_its_state(policy: Path) -> None:
    def step(learner: Learner) -> None:
        learner.carry_rewards(rows(learner.model), torch.tensor([-1.0, 0.5, 0.0, 1.0]))
        learner.carry_values([learner.model.encode(PROMPT)[0]], torch.tensor([1.0]))
        assert learner.apply()

    whole, first = (Learner(reward_model(policy), 1e-2, 1e-1, 200) for _ in range(2))
    step(whole), step(whole), step(first)
    again = Learner(reward_model(policy), 1e-2, 1e-1, 200)
    again.load_state_dict(first.state_dict())
    step(again)
    assert again.updates == 2
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_part_without_a_gradient_stays_in_spite_of_its_moments(policy: Path) -> None:
    learner = Learner(reward_model(policy), 1e-2, 1e-1, 200)
    prompts = [learner.model.encode(PROMPT)[0]]
    learner.carry_rewards(rows(learner.model), torch.tensor([-1.0, 0.5, 0.0, 1.0]))
    learner.carry_values(prompts, torch.tensor([1.0]))
    assert learner.apply()
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    learner.carry_rewards(rows(learner.model), torch.zeros(4))
    learner.carry_values(prompts, torch.tensor([1.0]))
    assert learner.apply() and learner.updates == 2
    moved = {name for name, p in learner.model.named_parameters() if not torch.equal(before[name], p)}
    assert moved == {"value_head.weight", "value_head.bias"}


def test_a_gradient_that_is_not_finite_changes_nothing(policy: Path) -> None:
    learner = Learner(reward_model(policy), 1e-2, 1e-1, 200)
    before = [p.detach().clone() for p in learner.model.parameters()]
    learner.carry_rewards(rows(learner.model), torch.tensor([float("nan"), 0.0, 0.0, 0.0]))
    assert not learner.apply() and learner.bad_updates == learner.updates == 1
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))

"""The miniature reference policy: reproducible, cached, complete or absent, and in the regime it is made for."""

import hashlib
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sandbox import Judge, Submission
from tasks.config import PretrainConfig, ReferenceConfig
from tasks.estimators import pass_at_k
from tasks.prepare import pretrain
from tasks.problems.miniature import generate
from tasks.problems.problem import Problem
from tasks.problems.prompt import template_for
from tasks.programs.extraction import extract_program, normal_hash

SMALL = PretrainConfig(steps=3, sequences_per_step=8, hidden_size=16, layers=1, heads=2)


def weights_hash(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_policy_is_an_ordinary_checkpoint(tmp_path: Path) -> None:
    folder = pretrain.miniature_policy(SMALL, tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "llama"
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert len(tokenizer) == SMALL.vocabulary == model.config.vocab_size
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi."}], tokenize=False, add_generation_prompt=True
    )
    assert prompt == "<|task|>Hi.<|answer|>"


def test_same_settings_give_the_same_weights_whatever_happened_before(tmp_path: Path) -> None:
    first = pretrain.miniature_policy(SMALL, tmp_path / "a")
    torch.manual_seed(99)
    torch.rand(10)
    second = pretrain.miniature_policy(SMALL, tmp_path / "b")
    assert weights_hash(first) == weights_hash(second)
    assert first.name == second.name


def test_the_caller_keeps_its_random_state_and_threads(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    pretrain.miniature_policy(SMALL, tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_other_settings_live_in_another_folder(tmp_path: Path) -> None:
    folders = {
        pretrain.miniature_policy(SMALL.model_copy(update=change), tmp_path)
        for change in ({}, {"seed": 1}, {"steps": 4}, {"mistake_rate": 0.5})
    }
    assert len(folders) == 4
    assert len({weights_hash(folder) for folder in folders}) == 4


def test_second_call_finds_the_policy_and_trains_nothing(tmp_path: Path) -> None:
    steps: list[int] = []
    for _ in range(2):
        pretrain.miniature_policy(SMALL, tmp_path, lambda step, _of, _loss: steps.append(step))
    assert steps == [1, 2, 3]


def test_interrupted_training_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop(step: int, _steps: int, _loss: float) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain.miniature_policy(SMALL, tmp_path, stop)
    assert list(tmp_path.iterdir()) == []


def test_the_one_who_finishes_second_keeps_the_first_result(tmp_path: Path) -> None:
    inner: list[Path] = []

    def meanwhile(step: int, _steps: int, _loss: float) -> None:
        if step == 3:
            inner.append(pretrain.miniature_policy(SMALL, tmp_path))

    assert pretrain.miniature_policy(SMALL, tmp_path, meanwhile) == inner[0]
    assert [path.name for path in tmp_path.iterdir()] == [inner[0].name]


def test_loss_that_explodes_is_an_error_that_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(pretrain.PretrainError, match=r"step \d+; lower pretrain.learning_rate"):
        pretrain.miniature_policy(SMALL.model_copy(update={"learning_rate": 1e20, "steps": 8}), tmp_path)


def test_any_text_survives_the_tokenizer() -> None:
    tokenizer = pretrain.train_tokenizer(SMALL)
    text = "Zwölf ünïcode → 🙂\n\tand tabs."
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_reference_policy_has_something_to_learn(tmp_path: Path) -> None:
    """pass@1 between 5% and 25%, pass@10 between 25% and 60% at T=0.4, top-p 0.95; several programs at T=1."""
    folder = pretrain.miniature_policy(PretrainConfig(), tmp_path)
    problems = [problem for problem in generate(1, 64, 0) if problem.split == "evaluation"]
    programs = {problem.problem_id: sampled(folder, problem, 20, 0.4, 0.95) for problem in problems}
    counts = [len(accepted(problem, programs[problem.problem_id])) for problem in problems]
    assert 0.05 < sum(pass_at_k(20, count, 1) for count in counts) / len(counts) < 0.25
    assert 0.25 < sum(pass_at_k(20, count, 10) for count in counts) / len(counts) < 0.60
    distinct = [len({normal_hash(p) for p in accepted(q, sampled(folder, q, 40, 1.0, 1.0))}) for q in problems[:16]]
    assert sum(distinct) / len(distinct) > 2


def accepted(problem: Problem, programs: list[str]) -> list[str]:
    with Judge() as judge:
        judgements = judge.judge([Submission(program, problem.suite()) for program in programs])
    return [program for program, judgement in zip(programs, judgements, strict=True) if judgement.verdict == "accepted"]


def sampled(folder: Path, problem: Problem, n: int, temperature: float, top_p: float) -> list[str]:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = torch.tensor([template_for(ReferenceConfig(), tokenizer).encode(tokenizer, problem)])
    torch.manual_seed(0)
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        num_return_sequences=n,
        temperature=temperature,
        top_p=top_p,
        top_k=0,
        max_new_tokens=96,
    )
    texts = tokenizer.batch_decode(output[:, prompt.shape[1] :], skip_special_tokens=True)
    return [extract_program(text) for text in texts]

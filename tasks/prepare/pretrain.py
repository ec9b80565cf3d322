"""The miniature reference policy: a tiny Llama trained from scratch on generated programs with systematic mistakes.

It writes sound Python for the miniature problems and confuses every second operation with another one most of the
time, so that sampling finds a right program now and then: a policy with something to learn. Saved as an ordinary
Hugging Face checkpoint with its own tokenizer and chat template. Same settings and seed, same weights on one machine
with one set of libraries.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from tasks.checkpoints.checkpoint import make_once
from tasks.config import PretrainConfig
from tasks.errors import CodedError
from tasks.problems.miniature import corpus, wide
from tasks.problems.miniature.small import all_compositions
from tasks.problems.prompt import MINIATURE_TOKEN

CODE_VERSION = "2"
"""Raised whenever the same settings would give another policy."""

ANSWER_TOKEN = "<|answer|>"
END_TOKEN = "<|end|>"
PAD_TOKEN = "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|answer|>' + message['content'] + '<|end|>' }}"
    "{% else %}{{ '<|task|>' + message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|answer|>' }}{% endif %}"
)
MAX_POSITIONS = 256
_POOL_BATCHES = 8
_PARTS = 2
"""Parts of a batch that are computed side by side, one thread each. Fixed, so that the weights do not depend on the
number of cores: the gradients are added in the order of the parts."""

PretrainProgress = Callable[[int, int, float], None]
"""Called with (step, steps, loss)."""


class PretrainError(CodedError):
    """The miniature reference policy could not be made; the message says why."""


def miniature_policy(config: PretrainConfig, cache: Path, progress: PretrainProgress | None = None) -> Path:
    """Folder of the miniature reference policy, made unless `cache` holds it already.

    The folder's name is a hash of the settings and of what the training programs look like.
    """
    folder = cache / f"miniature-{fingerprint(config)}"
    return make_once(folder, lambda unfinished: _make(config, unfinished, progress))


def fingerprint(config: PretrainConfig) -> str:
    """Identity of the policy that `config` gives: settings, code version and a sample of the training pairs."""
    sample = corpus(Random(0), config.mistake_rate, config.depth)
    pairs = [next(sample) for _ in range(200)]
    known = wide.phrases() if config.depth else [composition.statement for composition in all_compositions()]
    text = json.dumps([CODE_VERSION, CHAT_TEMPLATE, config.model_dump(), pairs, known], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def train_tokenizer(config: PretrainConfig) -> Any:
    """A byte-level BPE tokenizer of `config.vocabulary` tokens, trained on generated statements and programs.

    Text is split at line ends and between sentences only, so that frequent phrases of code become one token and a
    response takes about 20.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [PAD_TOKEN, MINIATURE_TOKEN, ANSWER_TOKEN, END_TOKEN]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n *"), "isolated"),
            pre_tokenizers.Split(Regex(r"(?<=\.) "), "merged_with_next"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs = corpus(Random(f"tokenizer {config.seed}"), 0.0, config.depth)
    bpe.train_from_iterator((text for _ in range(4000) for text in next(pairs)), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END_TOKEN, pad_token=PAD_TOKEN, additional_special_tokens=special[1:3]
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = MAX_POSITIONS
    return tokenizer


def _make(config: PretrainConfig, folder: Path, progress: PretrainProgress | None) -> None:
    import torch

    tokenizer = train_tokenizer(config)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = _model(config, tokenizer)
            _train(model, _batches(config, tokenizer), config, progress)
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _model(config: PretrainConfig, tokenizer: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=3 * config.hidden_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=MAX_POSITIONS,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def _batches(config: PretrainConfig, tokenizer: Any) -> Iterator[tuple[Any, Any]]:
    """(input ids, labels), both (B, T); labels are -100 outside the program and its end token.

    Sequences are sorted by length within a pool of batches, to pad less; the batches of a pool come in random order.
    """
    random = Random(f"pretrain {config.seed}")
    pairs = corpus(random, config.mistake_rate, config.depth)
    size = config.sequences_per_step
    while True:
        pool = [next(pairs) for _ in range(size * _POOL_BATCHES)]
        prompts = tokenizer([f"{MINIATURE_TOKEN}{statement}{ANSWER_TOKEN}" for statement, _ in pool])["input_ids"]
        answers = tokenizer([f"{program}{END_TOKEN}" for _, program in pool])["input_ids"]
        encoded = sorted(zip(prompts, answers, strict=True), key=lambda pair: len(pair[0]) + len(pair[1]))
        batches = [encoded[start : start + size] for start in range(0, len(encoded), size)]
        random.shuffle(batches)
        yield from (_padded(batch, tokenizer.pad_token_id) for batch in batches)


def _padded(batch: list[tuple[list[int], list[int]]], pad: int) -> tuple[Any, Any]:
    """Right-padded: under causal attention no real token sees padding, so no attention mask is needed."""
    import torch

    length = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids = torch.full((len(batch), length), pad)
    labels = torch.full((len(batch), length), -100)
    for row, (prompt, answer) in enumerate(batch):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def _train(
    model: Any, batches: Iterator[tuple[Any, Any]], config: PretrainConfig, progress: PretrainProgress | None
) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, config.steps))
    model.train()
    with ThreadPoolExecutor(_PARTS, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        for step in range(1, config.steps + 1):
            value = _backward(model, *next(batches), threads)
            if not math.isfinite(value):
                raise PretrainError(f"the pretraining loss became {value} at step {step}; lower pretrain.learning_rate")
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if progress is not None:
                progress(step, config.steps, value)
    model.eval()


def _backward(model: Any, ids: Any, labels: Any, threads: ThreadPoolExecutor) -> float:
    """Set the gradients of the batch's mean cross-entropy per answer token; returns that mean."""
    count = int((labels != -100).sum())

    def part(rows: slice) -> tuple[Any, Any]:
        return _part_gradients(model, ids[rows], labels[rows], count)

    losses, gradients = zip(
        *threads.map(part, [slice(i, None, _PARTS) for i in range(min(_PARTS, len(ids)))]), strict=True
    )
    for parameter, pieces in zip(model.parameters(), zip(*gradients, strict=True), strict=True):
        parameter.grad = sum(pieces[1:], start=pieces[0])
    return float(sum(losses))


def _part_gradients(model: Any, ids: Any, labels: Any, count: int) -> tuple[Any, Any]:
    """A part's cross-entropy over the `count` answer tokens of the whole batch, and its gradients.

    The head is applied to what predicts an answer token alone. Gradients come back by value: threads share the weights.
    """
    import torch

    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    answer = targets != -100
    loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[answer]), targets[answer], reduction="sum") / count
    return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))


def _rate(step: int, steps: int) -> float:
    """Linear warm-up over a twentieth of the steps, then a cosine down to a twentieth of the rate."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

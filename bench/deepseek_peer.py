#!/usr/bin/env python3
"""Trains a DeepSeek-V3 in PyTorch as `hone pretrain` does, for comparison.

    deepseek_peer.py [--config RECIPE] --model_name_or_path FOLDER --dataset_name TEXT --output_dir FOLDER
                     [--KEY VALUE ...]

The keys, their defaults and metrics.jsonl in the output folder are those of `hone pretrain`. A key whose value would
change the results and is not implemented here is refused. The model is DeepseekV3ForCausalLM of transformers, loaded
from a folder that hone wrote. The text is tokenized by the library tokenizers.

As in hone:
- The text is cut into rows of block_size tokens, which are read in hone's order. A step is one batch.
- AdamW has f32 master weights and f32 moments. Norms do not decay. The bias of each expert moves by bias_update_speed,
  up if the expert had less than the mean load of the step, otherwise down.
- The balance loss of a row is experts / top_k x the sum over experts of f x P: f is the share of tokens that have the
  expert among the top_k highest sigmoids of the logits, biases aside, and P the mean of the normalized sigmoids.
Unlike hone in bfloat16:
- Gradients of weights, the cosines and sines of rotary positions and the logits of the head are rounded to bfloat16.
Needs torch and transformers 5.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys
import time
import typing

import tokenizers
import torch
import transformers
import yaml
from torch.nn import functional as F

KEYS = {
    "model_name_or_path": "",
    "tokenizer_name_or_path": "",
    "dataset_name": "",
    "output_dir": "",
    "torch_dtype": "auto",
    "device": "auto",
    "block_size": 512,
    "test_split_size": 0.0,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "max_grad_norm": 1.0,
    "seed": 42,
    "learning_rate": 5e-4,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.0,
    "warmup_steps": 0,
    "aux_loss_alpha": 0.0,
    "bias_update_speed": 0.001,
    "eval_steps": 0,
}
IMPLEMENTED = {  # the only values of these keys
    "model_config_path": [""],
    "lr_scheduler_type": ["linear", "cosine"],
    "torch_dtype": ["auto", "bfloat16", "float32"],
    "sampling": ["blocks"],
    "logging_steps": ["1"],
    "eval_strategy": ["no", "steps"],
    "eval_on_start": ["true"],
}
WITHOUT_EFFECT = [
    "run_name", "gradient_checkpointing", "dataloader_num_workers", "dataloader_pin_memory", "save_strategy",
    "save_total_limit"
]


def read_keys():
    """Returns the keys of the command line, over those of --config, over hone's defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="YAML file of keys")
    parser.add_argument("--experts", default="grouped_mm", help="transformers' implementation of the experts")
    for key in {**KEYS, **IMPLEMENTED, **dict.fromkeys(WITHOUT_EFFECT)}:
        parser.add_argument(f"--{key}", default=argparse.SUPPRESS)
    given = vars(parser.parse_args())
    recipe = {}
    if given["config"]:
        recipe = yaml.safe_load(pathlib.Path(given["config"]).read_text())
    values = {**KEYS, **recipe, **given}
    for key, value in values.items():
        if key not in ("config", "experts") and key not in {**KEYS, **IMPLEMENTED} and key not in WITHOUT_EFFECT:
            sys.exit(f"deepseek_peer: {key}: is not implemented here; remove it")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if key in IMPLEMENTED and text not in IMPLEMENTED[key]:
            sys.exit(f"deepseek_peer: {key}: is '{text}', expected one of {IMPLEMENTED[key]}")
    keys = argparse.Namespace(**{**values, **{key: type(default)(values[key]) for key, default in KEYS.items()}})
    keys.rows_per_step = keys.per_device_train_batch_size * keys.gradient_accumulation_steps
    return keys


def philox(key, counter):
    """Philox 4x32 with 10 rounds (src/core/random.h)."""
    low, high = key & 0xFFFFFFFF, key >> 32
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ low, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ high, a & 0xFFFFFFFF
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def shuffled(count, seed, epoch):
    """Returns the order of `count` rows in an epoch: RandomStream(seed, "shuffle", epoch).permutation(count)."""
    name = 0xCBF29CE484222325
    for character in b"shuffle":
        name = (name ^ character) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    words = philox(seed, (name & 0xFFFFFFFF, name >> 32, 0, 0))
    key = words[1] << 32 | words[0]
    order = list(range(count))
    for i in range(count, 1, -1):
        words = philox(key, (i // 2, 0, epoch, 0))
        draw = words[i % 2 * 2] << 32 | words[i % 2 * 2 + 1]
        j = draw * i >> 64
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def read_rows(keys):
    """Returns the rows of tokens to train on and those to evaluate on, both in the order of the text."""
    folder = pathlib.Path(keys.tokenizer_name_or_path or keys.model_name_or_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = pathlib.Path(keys.dataset_name).read_bytes().decode()
    tokens = tokenizer.encode(text).ids
    end = json.loads((folder / "tokenizer_config.json").read_text()).get("eos_token")
    if end and tokens[-1] != tokenizer.token_to_id(end):
        tokens.append(tokenizer.token_to_id(end))
    cut = int((1 - keys.test_split_size) * len(tokens) + 1e-6)

    def rows(part):
        return [part[begin:begin + keys.block_size] for begin in range(0, len(part), keys.block_size)]

    return rows(tokens[:cut]), rows(tokens[cut:])


class Rows:
    """Rows of tokens on the device, filled up to block_size on the right, where attention does not look."""

    def __init__(self, rows, block_size, device):
        self.lengths = [len(row) for row in rows]
        self.tokens = torch.tensor([row + [0] * (block_size - len(row)) for row in rows]).to(device)
        self.targets = torch.tensor([row[1:] + [-100] * (block_size - len(row) + 1) for row in rows]).to(device)
        self.is_token = (torch.arange(block_size) < torch.tensor(self.lengths).unsqueeze(1)).to(device)

    def batches(self, order, size):
        """Yields batches of `size` rows in this order of rows; the last one may have fewer."""
        on_device = torch.tensor(order, device=self.tokens.device)
        for begin in range(0, len(order), size):
            rows = on_device[begin:begin + size]
            yield Batch(self.tokens[rows], self.targets[rows], self.is_token[rows],
                        sum(self.lengths[row] - 1 for row in order[begin:begin + size]))


class Batch(typing.NamedTuple):
    tokens: torch.Tensor  # [rows, block_size]
    targets: torch.Tensor  # [rows, block_size], -100 where there is none
    is_token: torch.Tensor  # [rows, block_size]
    target_count: int


class Routers:
    """Adds up the load of each expert and the balance loss from the inputs of a model's routers."""

    def __init__(self, model, balances):
        config = model.config
        if config.n_group != 1:
            sys.exit(f"deepseek_peer: n_group is {config.n_group}, expected 1")
        self.experts, self.top_k, self.balances = config.n_routed_experts, config.num_experts_per_tok, balances
        self.gates = [m for m in model.modules() if hasattr(m, "e_score_correction_bias")]
        for gate in self.gates:
            gate.e_score_correction_bias.data = gate.e_score_correction_bias.data.float()
            gate.register_forward_hook(self.read)

    def begin(self, batch):
        self.is_token = batch.is_token
        self.loads = []  # of each layer: [experts]
        self.term = 0  # [rows]

    def chosen(self, scores):
        """Returns 1 for the top_k experts of each token, otherwise 0: [rows, length, experts]."""
        best = torch.zeros_like(scores).scatter_(-1, scores.topk(self.top_k, dim=-1).indices, 1.0)
        return best * self.is_token.unsqueeze(-1)

    def read(self, gate, inputs, _):
        hidden = inputs[0].view(*self.is_token.shape, -1)
        scores = F.linear(hidden.float(), gate.weight.float()).sigmoid()
        with torch.no_grad():
            self.loads.append(self.chosen(scores + gate.e_score_correction_bias).sum((0, 1)))
            choices = self.chosen(scores).sum(1)  # [rows, experts]
        if not self.balances:
            return
        probabilities = scores / scores.sum(-1, keepdim=True) * self.is_token.unsqueeze(-1)
        tokens = self.is_token.sum(1)
        products = (choices * probabilities.sum(1)).sum(-1)
        self.term = self.term + products * self.experts / self.top_k / tokens**2

    def load_variation(self):
        """Returns the coefficient of variation of the load, as a mean over layers."""
        loads = torch.stack(self.loads)
        return (loads.std(-1, correction=0) / loads.mean(-1)).mean()

    def move_biases(self, speed):
        for gate, load in zip(self.gates, self.loads):
            gate.e_score_correction_bias += speed * torch.sign(load.sum() - load * self.experts)


class Trainer:
    def __init__(self, keys):
        self.keys = keys
        self.device = keys.device
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = keys.torch_dtype
        if dtype == "auto":
            dtype = json.loads((pathlib.Path(keys.model_name_or_path) / "config.json").read_text())["torch_dtype"]
        dtype = getattr(torch, dtype)
        self.model = transformers.DeepseekV3ForCausalLM.from_pretrained(
            keys.model_name_or_path, dtype=dtype, experts_implementation=keys.experts).to(self.device).train()
        self.model.model.embed_tokens.padding_idx = None  # with an index, torch would not train this row
        self.weights = list(self.model.parameters())
        for weight in self.weights:
            weight.data = weight.data.to(dtype)  # transformers keeps routers in f32
        self.masters = [torch.nn.Parameter(weight.detach().float().clone()) for weight in self.weights]
        self.routers = Routers(self.model, keys.aux_loss_alpha > 0)
        self.optimizer = torch.optim.AdamW(
            [{"params": [m for m in self.masters if m.dim() > 1], "weight_decay": keys.weight_decay},
             {"params": [m for m in self.masters if m.dim() == 1], "weight_decay": 0.0}],
            betas=(keys.adam_beta1, keys.adam_beta2), eps=keys.adam_epsilon, fused=self.device == "cuda")

    def loss(self, batch):
        """Returns the mean over target tokens, with the balance loss of each target's row."""
        self.routers.begin(batch)
        hidden = self.model.model(input_ids=batch.tokens, use_cache=False).last_hidden_state
        logits = self.model.lm_head(hidden).float()
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum")
        if self.keys.aux_loss_alpha > 0:
            targets = batch.is_token.sum(1) - 1
            loss = loss + self.keys.aux_loss_alpha * (self.routers.term * targets).sum()
        return loss / batch.target_count

    def step(self, batch, learning_rate):
        """Returns the loss, the norm of the gradient and the coefficient of variation of the load, on the device."""
        loss = self.loss(batch)
        loss.backward()
        for weight, master in zip(self.weights, self.masters):
            master.grad, weight.grad = weight.grad.float(), None
        norms = [torch.linalg.vector_norm(master.grad, dtype=torch.float64) for master in self.masters]
        norm = torch.linalg.vector_norm(torch.stack(norms))  # on a CPU, sums in f32 of many squares are off by 1e-4
        torch.nn.utils.clip_grads_with_norm_(self.masters, self.keys.max_grad_norm or math.inf, norm.float())
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)
            variation = self.routers.load_variation()
            self.routers.move_biases(self.keys.bias_update_speed)
        return torch.stack([loss.detach(), norm.float(), variation])

    @torch.no_grad()
    def evaluate(self, rows):
        sums = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in rows.batches(range(len(rows.lengths)), self.keys.per_device_eval_batch_size):
            sums += self.loss(batch).double() * batch.target_count
        return sums.item() / sum(length - 1 for length in rows.lengths)


def rate_factor(keys, step, total, warmup):
    if step < warmup:
        return step / warmup
    progress = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * progress)) if keys.lr_scheduler_type == "cosine" else max(0.0, 1 - progress)


def train_batches(rows, keys):
    """Yields the batches of the steps, epoch after epoch."""
    for epoch in itertools.count():
        yield from rows.batches(shuffled(len(rows.lengths), keys.seed, epoch), keys.rows_per_step)


def main():
    keys = read_keys()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    trainer = Trainer(keys)
    train_rows, test_rows = (Rows(rows, keys.block_size, trainer.device) for rows in read_rows(keys))
    total = keys.max_steps
    if total <= 0:
        total = math.ceil(keys.num_train_epochs * math.ceil(len(train_rows.lengths) / keys.rows_per_step))
    warmup = keys.warmup_steps or math.ceil(total * keys.warmup_ratio)
    output = pathlib.Path(keys.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    pending = []  # of the steps since the last evaluation: (row without figures, figures on the device)
    start = time.perf_counter()
    with (output / "metrics.jsonl").open("w") as metrics:

        def write_pending():
            for row, figures in pending:
                loss, norm, variation = figures.tolist()
                metrics.write(json.dumps({**row, "loss": loss, "grad_norm": norm, "expert_load_cv": variation}) + "\n")
            pending.clear()

        def evaluate(step):
            write_pending()
            loss = trainer.evaluate(test_rows)
            metrics.write(json.dumps({"step": step, "eval_loss": loss}) + "\n")
            seconds = time.perf_counter() - start
            print(f"torch: step {step}/{total} | eval_loss {loss:.4f} | {seconds:.1f} s", flush=True)

        evaluate(0)
        for step, batch in enumerate(itertools.islice(train_batches(train_rows, keys), total)):
            rate = keys.learning_rate * rate_factor(keys, step, total, warmup)
            pending.append(({"step": step + 1, "learning_rate": rate}, trainer.step(batch, rate)))
            if keys.eval_steps > 0 and (step + 1) % keys.eval_steps == 0:
                evaluate(step + 1)
        write_pending()


if __name__ == "__main__":
    main()

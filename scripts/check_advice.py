"""Compares the gains that hone profile predicts with those of training. scripts/check_advice.sh runs this.
  check_advice.py HONE FOLDER [CASE ...]   FOLDER: an empty folder"""
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys

HONE, FOLDER, CHOSEN = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
REPEATS = int(os.environ.get("HONE_REPEATS", "3"))
STEPS, WARMUP = 12, 3

MODEL = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 256, "head_dim": 32,
         "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True,
         "initializer_range": 0.05}
GOOD_SFT = {"packing": True, "max_length": 256, "torch_dtype": "bfloat16", "gradient_checkpointing": False,
            "per_device_train_batch_size": 8, "optim": "adamw_bf16", "gradient_dtype": "bfloat16"}
GOOD_PRETRAIN = {"block_size": 256, "torch_dtype": "bfloat16", "gradient_checkpointing": False,
                 "per_device_train_batch_size": 8, "optim": "adamw_bf16", "gradient_dtype": "bfloat16"}
GOOD_GRPO = {"num_generations": 4, "per_device_train_batch_size": 32, "max_completion_length": 32, "beta": 0,
             "torch_dtype": "bfloat16", "gradient_checkpointing": False, "max_steps": STEPS}
# name -> kind, recipe, and the key that the first advice must set; for a reward the recipe without the fault
CASES = {
    "packing": ("sft", GOOD_SFT | {"packing": False}, "packing"),
    "recomputation": ("sft", GOOD_SFT | {"gradient_checkpointing": True}, "gradient_checkpointing"),
    "float32": ("sft", GOOD_SFT | {"torch_dtype": "float32", "optim": "adamw_torch", "gradient_dtype": "float32"}, "torch_dtype"),
    "micro_batches": ("pretrain", GOOD_PRETRAIN | {"block_size": 32, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 32},
                      "max_tokens_per_micro_batch"),
    "tiny_batch": ("pretrain", GOOD_PRETRAIN | {"block_size": 64, "per_device_train_batch_size": 1}, "per_device_train_batch_size"),
    "slow_reward": ("grpo", GOOD_GRPO | {"reward_funcs": [f"{FOLDER}/rewards.py:slow"]},
                    {"reward_funcs": [f"{FOLDER}/rewards.py:fast"]}),
}


def hone(*arguments):
    ended = subprocess.run([HONE, *map(str, arguments)], capture_output=True, text=True)
    assert ended.returncode == 0, (arguments, ended.stderr[-2000:])
    return ended.stdout


def write_data():
    noise = random.Random(1)
    chats, corpus, prompts = [], [], []
    for _ in range(4000):
        a, b = noise.randrange(60), noise.randrange(60)
        answer = " ".join(f"{a} + {i} = {a + i}." for i in range(noise.randrange(1, 12)))
        chats.append({"messages": [{"role": "user", "content": f"What is {a} + {b}?"},
                                   {"role": "assistant", "content": f"{answer} So {a} + {b} = {a + b}."}]})
        corpus.append({"text": f"What is {a} + {b}? {answer} So {a} + {b} = {a + b}."})
        prompts.append({"prompt": [{"role": "user", "content": f"What is {a} + {b}?"}]})
    for name, rows in (("chats", chats), ("corpus", corpus), ("prompts", prompts)):
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (FOLDER / "model.json").write_text(json.dumps(MODEL))
    (FOLDER / "rewards.py").write_text(
        "import time\ndef fast(completions, **kwargs):\n    return [float(len(one[0]['content']) % 7) for one in completions]\n"
        "def slow(completions, **kwargs):\n    time.sleep(0.5)\n    return fast(completions)\n")
    hone("tokenizer", "train", "--input", FOLDER / "corpus.jsonl", "--vocab_size", 2000, "--output", FOLDER / "tokenizer",
         "--special_tokens", "<|endoftext|>,<|im_start|>,<|im_end|>", "--eos_token", "<|endoftext|>")
    hone("pretrain", "--model_config_path", FOLDER / "model.json", "--tokenizer_name_or_path", FOLDER / "tokenizer",
         "--dataset_name", FOLDER / "corpus.jsonl", "--block_size", 128, "--max_steps", 2, "--output_dir", FOLDER / "model", "--device", "cpu")


def recipe(kind, settings):
    data = {"sft": "chats", "pretrain": "corpus", "grpo": "prompts"}[kind]
    lines = {"model_name_or_path": str(FOLDER / "model"), "dataset_name": str(FOLDER / f"{data}.jsonl"), "device": "cpu"} | settings
    path = FOLDER / f"{kind}.yaml"
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items()))
    return path


def tokens_per_second(kind, settings):
    run = FOLDER / "run"
    hone(kind, recipe(kind, settings), "--max_steps", STEPS, "--logging_steps", 1, "--save_strategy", "no", "--overwrite_output_dir",
         "--output_dir", run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "step_time" in row]
    tokens = rows[-1]["num_tokens"] - rows[WARMUP - 1]["num_tokens"]
    return tokens / sum(row["step_time"] for row in rows[WARMUP:])


def value_of(text):
    return {"true": True, "false": False}.get(text, int(text) if re.fullmatch(r"\d+", text) else text)


def check(name):
    kind, settings, wanted = CASES[name]
    hone("profile", kind, recipe(kind, settings), "--num_steps", 6, "--trial_steps", 6, "--output_dir", FOLDER / "profile")
    advice = json.loads((FOLDER / "profile/kernel_summary.json").read_text())["advice"]
    first = advice[0]
    if isinstance(wanted, dict):
        followed = settings | wanted
        assert "slow" in first["text"] and "gain" in first, advice
    else:
        assert wanted in first.get("settings", {}), advice
        followed = settings | {key: value_of(value) for key, value in first["settings"].items()}
    before, after = [], []
    for _ in range(REPEATS):  # in turns, so that both see the same machine
        before.append(tokens_per_second(kind, settings))
        after.append(tokens_per_second(kind, followed))
    gain = statistics.median(after) / statistics.median(before)
    text = ", ".join(f"{key}: {value}" for key, value in first.get("settings", {}).items()) or "a faster reward"
    print(f"advice: {name}: {text}: predicted x {first['gain']:.2f}, followed x {gain:.2f} "
          f"({statistics.median(before):.0f} to {statistics.median(after):.0f} tokens/s)", flush=True)
    assert gain > 1, "the advice gained nothing"


write_data()
for case in CHOSEN or CASES:
    check(case)

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
import time

HONE, FOLDER, CHOSEN = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
DEVICE = os.environ.get("HONE_DEVICE", "cpu")
REPEATS = int(os.environ.get("HONE_REPEATS", "3"))
STEPS, WARMUP = 40, 10
MOST_ERROR = 0.25  # of a predicted gain, compared with the gain that was measured
NO_GAIN = 1.03  # hone profile advises from 1.02 on
os.environ["HONE_CACHE"] = str(FOLDER / "cache")  # no tokens and no rates of earlier runs

BIG = DEVICE != "cpu"
SHAPE = {"hidden_size": 1024, "head_dim": 64, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16,
         "num_key_value_heads": 8} if BIG else {
         "hidden_size": 128, "head_dim": 32, "intermediate_size": 352, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
MODEL = SHAPE | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
                 "rope_theta": 10000.0, "tie_word_embeddings": True, "initializer_range": 0.05}
TINY = MODEL | {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
                "head_dim": 32}
ODD = MODEL | {"hidden_size": 1544, "intermediate_size": 4104, "num_hidden_layers": 8, "vocab_size": 8200}  # few multiples of 64
LENGTH = 1024 if BIG else 128
GOOD = {"torch_dtype": "bfloat16", "gradient_checkpointing": False, "per_device_train_batch_size": 16 if BIG else 8, "optim": "adamw_bf16",
        "gradient_dtype": "bfloat16", "max_steps": STEPS, "learning_rate": 1e-4}
SFT = GOOD | {"packing": True, "max_length": LENGTH}
PRETRAIN = GOOD | {"block_size": LENGTH}
GRPO = {"num_generations": 4, "per_device_train_batch_size": 32, "max_completion_length": 32, "beta": 0, "torch_dtype": "bfloat16",
        "gradient_checkpointing": False, "max_steps": STEPS}
# name -> kind, recipe, and the key that the first advice must name. kind "shape": flags of a known shape.
CASES = {
    "packing": ("sft", SFT | {"packing": False, "max_length": 2048 if BIG else 512}, "packing"),
    "recomputation": ("sft", SFT | {"gradient_checkpointing": True}, "gradient_checkpointing"),
    "float32": ("sft", SFT | {"torch_dtype": "float32", "optim": "adamw_torch", "gradient_dtype": "float32"}, "torch_dtype"),
    "micro_batches": ("pretrain", PRETRAIN | {"block_size": LENGTH // 8, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 32},
                      "max_tokens_per_micro_batch"),
    "slow_reward": ("grpo", GRPO | {"reward_funcs": [f"{FOLDER}/rewards.py:slow"]}, "reward_funcs"),
    "data_bound": ("pretrain", PRETRAIN | {"dataset_name": f"{FOLDER}/large.jsonl", "token_cache": False}, "token_cache"),
    "host_bound": ("pretrain", PRETRAIN | {"model_name_or_path": f"{FOLDER}/tiny", "block_size": 16, "per_device_train_batch_size": 1,
                                           "optim": "sgd"}, "per_device_train_batch_size"),
    "untuned_gemms": ("shape", {"model": f"{FOLDER}/odd.json", "batch_size": 16, "seq_len": 1024, "optim": "adamw_bf16",
                                "gradient_dtype": "bfloat16", "gradient_checkpointing": False}, "tune_gemm"),
}
ON_A_GPU = {"untuned_gemms"}  # a CPU has nothing to tune


def hone(*arguments):
    ended = subprocess.run([HONE, *map(str, arguments)], capture_output=True, text=True)
    assert ended.returncode == 0, (arguments, ended.stderr[-2000:])
    return ended.stdout


def write_rows(name, rows):
    (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_data():
    noise = random.Random(1)
    chats, corpus, prompts = [], [], []
    for _ in range(20000 if BIG else 4000):
        a, b = noise.randrange(60), noise.randrange(60)
        answer = " ".join(f"{a} + {i} = {a + i}." for i in range(noise.randrange(1, 12)))
        chats.append({"messages": [{"role": "user", "content": f"What is {a} + {b}?"},
                                   {"role": "assistant", "content": f"{answer} So {a} + {b} = {a + b}."}]})
        corpus.append({"text": f"What is {a} + {b}? {answer} So {a} + {b} = {a + b}."})
        prompts.append({"prompt": [{"role": "user", "content": f"What is {a} + {b}?"}]})
    for name, rows in (("chats", chats), ("corpus", corpus), ("prompts", prompts)):
        write_rows(name, rows)
    write_rows("large", [{"text": " ".join(str(noise.randrange(10 ** 9)) for _ in range(400))} for _ in range(16000)])
    (FOLDER / "rewards.py").write_text(
        "import time\ndef fast(completions, **kwargs):\n    return [float(len(one[0]['content']) % 7) for one in completions]\n"
        "def slow(completions, **kwargs):\n    time.sleep(0.15)\n    return fast(completions)\n")
    hone("tokenizer", "train", "--input", FOLDER / "corpus.jsonl", "--vocab_size", 2000, "--output", FOLDER / "tokenizer",
         "--special_tokens", "<|endoftext|>,<|im_start|>,<|im_end|>", "--eos_token", "<|endoftext|>")
    (FOLDER / "odd.json").write_text(json.dumps(ODD))
    for name, config in (("model", MODEL), ("tiny", TINY)):
        (FOLDER / f"{name}.json").write_text(json.dumps(config))
        hone("pretrain", "--model_config_path", FOLDER / f"{name}.json", "--tokenizer_name_or_path", FOLDER / "tokenizer",
             "--dataset_name", FOLDER / "corpus.jsonl", "--block_size", 128, "--max_steps", 1, "--output_dir", FOLDER / name, "--device", DEVICE)


def recipe(kind, settings):
    data = {"sft": "chats", "pretrain": "corpus", "grpo": "prompts"}[kind]
    lines = {"model_name_or_path": str(FOLDER / "model"), "dataset_name": str(FOLDER / f"{data}.jsonl"), "device": DEVICE} | settings
    path = FOLDER / f"{kind}.yaml"
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items()))
    return path


def flags(settings):
    return [text for key, value in settings.items() for text in (f"--{key}", json.dumps(value).strip('"'))]


def tokens_per_second(kind, settings, whole):
    """The rate of a run: of its median step after the warm-up, or with `whole` of all its time, start and end included."""
    if kind == "shape":
        printed = hone("bench", "train", *flags(settings), "--seconds", 3, "--warmup_seconds", 2)
        return float(re.search(r"([\d,]+) tokens/s", printed)[1].replace(",", ""))
    run, begin = FOLDER / "run", time.monotonic()
    hone(kind, recipe(kind, settings), "--logging_steps", 1, "--save_strategy", "no", "--overwrite_output_dir", "--output_dir", run)
    wall = time.monotonic() - begin
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "step_time" in row]
    if whole:
        return rows[-1]["num_tokens"] / wall
    counts = [after["num_tokens"] - before["num_tokens"] for before, after in zip(rows, rows[1:])]
    return statistics.median(count / row["step_time"] for count, row in list(zip(counts, rows[1:]))[WARMUP - 1:])


def value_of(text):
    return {"true": True, "false": False}.get(text, int(text) if re.fullmatch(r"\d+", text) else text)


def profile(kind, settings):
    steps = ["--num_steps", 20, "--trial_steps", 30, "--counters", "false", "--output_dir", FOLDER / "profile"]
    if kind == "shape":
        hone("profile", *flags(settings), *steps)
    else:
        hone("profile", kind, recipe(kind, settings), *steps)
    return json.loads((FOLDER / "profile/kernel_summary.json").read_text())


def rates(kind, settings, followed, whole):
    before, after = [], []
    for _ in range(REPEATS):  # in turns, so that both see the same machine
        before.append(tokens_per_second(kind, settings, whole))
        after.append(tokens_per_second(kind, followed, whole))
    return statistics.median(before), statistics.median(after)


def check_without_gain(name, kind, settings, key, summary):
    """Follows advice that was not given: the library's GEMMs may be the fastest ones on this device."""
    trial = next((one for one in summary["trials"] if key in one["settings"] and "gain" in one), None)
    if trial is None:
        return None
    before, after = rates(kind, settings, settings | {name: value_of(value) for name, value in trial["settings"].items()}, False)
    passes = trial["gain"] < NO_GAIN and after / before < NO_GAIN
    return (f"advice: {name}: {'passes' if passes else 'FAILED'}: {key} is not advised: predicted x {trial['gain']:.3f}, followed x "
            f"{after / before:.3f} ({before:.0f} to {after:.0f} tokens/s)")


def check(name):
    kind, settings, wanted = CASES[name]
    summary = profile(kind, settings)
    first = summary["advice"][0]
    named = {first["key"]: None} if "key" in first else first.get("settings", {})
    if wanted not in named or "gain" not in first:
        return name in ON_A_GPU and check_without_gain(name, kind, settings, wanted, summary) or (
            f"advice: {name}: FAILED: {wanted} is not named first: " + json.dumps([one["text"] for one in summary["advice"][:3]]))
    followed = settings | {key: value_of(value) for key, value in first.get("settings", {}).items()}
    if wanted == "reward_funcs":
        followed["reward_funcs"] = [f"{FOLDER}/rewards.py:fast"]
    before, after = rates(kind, settings, followed, wanted == "token_cache")
    gain = after / before
    error = first["gain"] / gain - 1
    passes = abs(error) <= MOST_ERROR and gain > 1
    set_to = ", ".join(f"{key}: {value}" for key, value in first.get("settings", {}).items()) or f"a faster {wanted}"
    return (f"advice: {name}: {'passes' if passes else 'FAILED'}: {set_to}: predicted x {first['gain']:.2f}, followed x {gain:.2f} "
            f"({100 * error:+.0f}%; {before:.0f} to {after:.0f} tokens/s)")


def main():
    write_data()
    failed = 0
    for case in CHOSEN or [name for name in CASES if BIG or name not in ON_A_GPU]:
        result = check(case)
        failed += "FAILED" in result
        print(result, flush=True)
    print(f"advice: {failed} failed, on {DEVICE}")
    return failed > 0


sys.exit(main())

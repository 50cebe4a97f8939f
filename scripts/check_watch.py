"""Uses the page of hone watch in headless Chromium. scripts/check_watch.sh runs this.
  check_watch.py HONE FOLDER [PICTURES]   FOLDER: an empty folder, where runs are written
The runs are written here, line by line as hone writes them, so that what the page must show is known."""
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import time

from browser import Browser

HONE, FOLDER, PICTURES = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
RUNS = FOLDER / "runs"
HOSTILE = '<script>window.hit=1</script><img src=x onerror="window.hit=1"><a href="javascript:window.hit=1">x</a> \u202eevil\u202c'


def append(run, rows):
    (RUNS / run).mkdir(parents=True, exist_ok=True)
    with open(RUNS / run / "metrics.jsonl", "a") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def training(first, last, falls):
    noise = random.Random(first)
    return [{"step": step, "run_name": HOSTILE, "loss": 0.6 + 4 * math.exp(-step / falls) + 0.05 * noise.random(),
             "grad_norm": 0.3 + noise.random() / 5, "learning_rate": 3e-4 * min(step / 50, 1), "epoch": step / 1000,
             "num_tokens": step * 4096.0, "tokens_per_second": 52000 + 900 * noise.random(),
             "process_memory_gib": 0.8, HOSTILE: 1.0}
            | ({"eval_loss": 0.7 + 4 * math.exp(-step / falls)} if step % 50 == 0 else {})
            for step in range(first, last + 1, 5)]


def reinforcement(first, last):
    noise = random.Random(first)
    return [{"step": step, "loss": 0.01 * noise.random(), "reward": 1 - 0.6 * math.exp(-step / 30),
             "reward/accuracy": 0.95 - 0.6 * math.exp(-step / 30) + 0.03 * noise.random(),
             "reward/format": 0.99 - 0.3 * math.exp(-step / 8), "reward/tag_count": 1 - 0.2 * math.exp(-step / 8),
             "completions/mean_length": 40 + step / 6 + 2 * noise.random(), "entropy": 0.4 * math.exp(-step / 60),
             "grad_norm": 0.2 + noise.random() / 5, "learning_rate": 3e-4, "clip_ratio/low_mean": 0.01,
             "num_tokens": step * 9000.0, "tokens_per_second": 21000 + 500 * noise.random(), "kl": None}
            for step in range(first, last + 1, 5)]


def completions(step):
    rows = []
    for prompt in range(4):
        for i in range(8):
            right = (prompt + i + step) % 3 > 0
            text = f"<think>\n{prompt} + 8 = {8 + prompt}\n</think>\n<answer>\n\\boxed{{{8 + prompt + (not right)}}}\n</answer>"
            rows.append({"step": step, "row": prompt, "prompt": f"<|im_start|>user\nWhat is {prompt} + 8?<|im_end|>\n",
                         "completion": HOSTILE + "A" * 500 if i == 7 else text, "finish_reason": "length" if i == 6 else "stop",
                         "rewards": {"accuracy": float(right), "format": 1.0, HOSTILE: None}, "advantage": 0.4 if right else -0.8})
    return rows


def evaluation(name, share):
    rows, noise = [], random.Random(len(name))
    for i in range(150):
        score = float(noise.random() < share)
        rows.append({"task": "arithmetic", "id": str(i), "sample": 0, "prompt": f"What is {i} + 8? {HOSTILE if i == 1 else ''}",
                     "gold": str(i + 8), "completion": f"<think>{i} + 8 = {i + 8 if score else i}</think>", "extracted": "",
                     "score": score, "tokens": 31, "ended": True})
    lines(RUNS / name / "samples.jsonl", rows)
    value = sum(row["score"] for row in rows) / len(rows)
    score = {"value": value, "standard_error": 0.03, "low": value - 0.06, "high": min(value + 0.06, 1)}
    (RUNS / name / "results.json").write_text(json.dumps({"settings": {"model_name_or_path": name}, "tasks": {"arithmetic": {
        "problems": 150, "samples": 1, "avg@1": score, "mean_tokens": 31.4, "truncated": 0.02, "without_answer": 0.1,
        "groups": {"size": {"1 to 20": score | {"problems": 60}, "21 to 40": score | {"problems": 90}}}}}}))


def profile(name, slower):
    """A profile as hone profile writes it, whose forward GEMMs take 40 ms."""
    kinds = [("linear", "GEMM", "layers.*.mlp", "forward", 24, 40.0, 3e9, 2e7), ("linear_weight_gradient", "GEMM", "layers.*.mlp", "backward", 24, 55.0 * slower, 3e9, 4e7),
             ("linear_input_gradient", "GEMM", "layers.*.mlp", "backward", 24, 50.0, 3e9, 3e7), ("attention", "attention", "layers.*.attention", "forward", 24, 22.0, 4e8, 6e6),
             ("attention_backward", "attention", "layers.*.attention", "backward", 24, 41.0, 9e8, 1e7), ("add_rms_norm", "normalization", "layers.*.attention", "forward", 48, 3.0, 2e6, 6e6),
             ("swiglu", "activation", "layers.*.mlp", "forward", 24, 6.0, 1e7, 2e7), ("linear_logprobs", "loss", "head", "forward", 4, 18.0, 1e9, 1e7),
             ("adamw", "optimizer", "update", "update", 40, 14.0, 2e7, 3e8), (HOSTILE, "memory", HOSTILE, "forward", 1, 1.0, 0.0, 1e7)]
    kernels = [{"op": op, "category": category, "module": module, "phase": phase, "shapes": "bf16[512, 1024]", "runs": runs, "ms": ms,
                "share": ms / 260, "flops": flops, "bytes": moved, "tflops": flops / ms * 1e-9, "gbps": moved / ms * 1e-6, "floor_ms": ms / 2, "of_possible": 0.5}
               for op, category, module, phase, runs, ms, flops, moved in kinds]
    sums = lambda key: [{"name": name, "ms": sum(one["ms"] for one in kernels if one[key] == name), "share": 0.1, "floor_ms": 1.0}
                        for name in dict.fromkeys(one[key] for one in kernels)]
    (RUNS / name).mkdir(parents=True, exist_ok=True)
    (RUNS / name / "kernel_summary.json").write_text(json.dumps({
        "what": "sft", "machine": "a processor", "num_steps": 5, "step_ms": 260.0, "unprofiled_step_ms": 255.0, "between_ms": 10.0,
        "tokens_per_step": 4096, "limits": {"copy_gbps": 20.0, "product_tflops": 0.2}, "categories": sums("category"), "modules": sums("module"),
        "candidates": [], "kernels": sorted(kernels, key=lambda one: -one["ms"]),
        "advice": [{"text": "packing: true: 1.62 times the tokens/s (26,000, up from 16,063, tried); documents are not packed. " + HOSTILE,
                    "settings": {"packing": "true"}, "gain": 1.62, "tokens_per_second": 26000.0}],
        "trials": [{"settings": {"packing": "true"}, "gain": 1.62, "step_ms": 400.0, "tokens_per_second": 26000.0},
                   {"settings": {"torch_dtype": "bfloat16"}, "refusal": "memory: too little"}],
        "counters": {"refusal": "not counted: cycles. " + HOSTILE, "of": "micro-batch and update",
                     "kernels": [{"op": "linear", "module": "layers.*.mlp", "phase": "forward", "runs": 24, "ms": 38.0, "gpu_ns": 3.8e7,
                                  "dram_read_bytes": 7.5e8, "dram_share": 0.375, "tensor_share": 0.8125}],
                     "launched": [{"kernel": HOSTILE, "runs": 24, "ms": 38.0, "dram_read_bytes": 7.5e8, "l2_hit_rate": 0.5}]}}))
    (RUNS / "profile-grpo").mkdir(exist_ok=True)
    (RUNS / "profile-grpo" / "kernel_summary.json").write_text(json.dumps({
        "what": "grpo", "machine": "a processor", "step_ms": 900.0, "tokens_per_step": 3000, "advice": [], "trials": [],
        "phases": [{"name": "generation", "ms": 500.0, "share": 0.55}, {"name": "waiting for rewards", "ms": 400.0, "share": 0.45}],
        "rewards": [{"name": "slow.py:slow", "ms": 380.0, "completions": 16, "waits_for_all": True}]}))


def start(port=0):
    log = FOLDER / "log"
    with open(log, "w") as errors:
        server = subprocess.Popen([HONE, "watch", str(RUNS), "--port", str(port)], stderr=errors)
    while not (found := re.search(r"http://[\d.]+:(\d+)", log.read_text())):
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    return server, int(found[1])


CHART = "[...document.querySelectorAll('.chart')].find((one) => one.querySelector('h3').textContent === {})"


def chart(title):
    return CHART.format(json.dumps(title))


def pictures(browser, name):
    for theme in ("light", "dark"):
        for width, height in ((1280, 860), (390, 844)):
            browser.show(theme, width, height)
            browser.picture(f"watch-{name}-{theme}-{width}")
    browser.show("light", 1280, 860)


def choose(browser, run, on):
    browser.run(f"[...document.querySelectorAll('.run')].filter((one) => one.innerText.includes({json.dumps(run)}) && "
                f"one.querySelector('input').checked !== {json.dumps(on)}).forEach((one) => one.querySelector('input').click())")


def tab(browser, name):
    browser.run(f"document.querySelector('[data-view={name}]').click()")


def check_curves(browser):
    browser.wait("document.querySelectorAll('.run').length === 3")
    browser.wait(f"{chart('loss')}?.querySelectorAll('path').length >= 4")  # three runs, one with an evaluation
    assert browser.run("document.querySelectorAll('.run.live').length") == 3
    pictures(browser, "curves")
    for other in ("pretrain", "sft"):
        choose(browser, other, False)
    browser.wait(f"{chart('rewards')}?.querySelectorAll('.legend span').length === 4")
    for control, value in (("smoothing", 0.6),):
        browser.run(f"(() => {{ const one = document.querySelector('input[type=range]'); one.value = {value}; one.oninput(); }})()")
    browser.wait(f"{chart('rewards')}.querySelectorAll('path.faint').length === 4")
    browser.run("(() => { const one = document.querySelector('.controls select'); one.value = 'tokens'; one.oninput(); })()")
    browser.run("document.querySelector('details.more').open = true")
    browser.wait(f"{chart('clip_ratio/low_mean')}?.querySelector('path') !== null")
    browser.wait(f"{chart('kl')}?.textContent.includes('no values yet')")
    box = browser.run(f"(() => {{ const b = {chart('rewards')}.querySelector('svg').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2)
    browser.wait(f"{chart('rewards')}.querySelector('.legend').textContent.includes('at ')")
    pictures(browser, "one-run")
    browser.run("(() => { const one = document.querySelector('input[type=range]'); one.value = 0; one.oninput(); })()")
    browser.run("(() => { const one = document.querySelector('.controls select'); one.value = 'step'; one.oninput(); })()")


def last_step(browser, run):
    return f"[...document.querySelectorAll('.run')].find((one) => one.innerText.includes('{run}')).innerText"


def check_live(browser):
    append("grpo", reinforcement(105, 150))
    browser.wait(f"{last_step(browser, 'grpo')}.includes('step 150')")
    with open(RUNS / "grpo" / "metrics.jsonl", "a") as file:  # a line that is being written
        file.write('{"step": 155, "rew')
        file.flush()
        time.sleep(4.5)
        assert "step 150" in browser.run(last_step(browser, "grpo"))
        assert browser.run("document.getElementById('state').textContent") == ""
        file.write('ard": 0.9}\n')
    browser.wait(f"{last_step(browser, 'grpo')}.includes('step 155')")
    with open(RUNS / "grpo" / "metrics.jsonl", "a") as file:
        file.write("nonsense\n")
    browser.wait("document.getElementById('state').textContent.includes('1 lines of metrics.jsonl could not be read')")
    # The run is resumed from step 100: the file is replaced by one with fewer rows, and continues with other values.
    lines(RUNS / "grpo" / "new", reinforcement(5, 100) + [{"step": 105, "reward": 0.123}])
    (RUNS / "grpo" / "new").rename(RUNS / "grpo" / "metrics.jsonl")
    browser.wait(f"{last_step(browser, 'grpo')}.includes('step 105')")
    browser.wait(f"{chart('rewards')}.querySelector('.legend').textContent.includes('0.123')")
    assert browser.run("document.getElementById('state').textContent") == ""
    append("late", training(5, 50, 20))
    browser.wait("document.querySelectorAll('.run').length === 4")


def check_completions(browser):
    tab(browser, "completions")
    browser.wait("document.querySelectorAll('.group').length === 4 && document.querySelectorAll('.answer').length === 32")
    assert "step 100" in browser.run("document.querySelector('select[aria-label=Step]').selectedOptions[0].textContent")
    assert "accuracy 1" in browser.run("document.querySelector('.answer').innerText")
    pictures(browser, "completions")
    browser.run("document.querySelector('button[aria-label=\"Earlier step\"]').click()")
    browser.wait("document.querySelector('select[aria-label=Step]').value === 'step-50' && document.querySelectorAll('.answer').length === 32")
    lines(RUNS / "grpo" / "completions" / "step-150.jsonl", completions(150))
    browser.wait("document.querySelector('select[aria-label=Step]').options.length === 4")
    assert browser.run("document.querySelector('select[aria-label=Step]').value") == "step-50"  # what was chosen stays
    browser.run("(() => { const one = document.querySelector('input[aria-label^=Completions]'); one.value = 'window.hit'; one.oninput(); })()")
    browser.wait("document.querySelectorAll('.answer').length === 4")


def check_evaluations(browser):
    tab(browser, "evaluations")
    browser.wait("document.querySelectorAll('table.scores tbody tr').length === 5")  # three scores, two kinds
    browser.wait("document.querySelectorAll('.question').length === 100")
    browser.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'More' && one.offsetParent).click()")
    browser.wait("document.querySelectorAll('.question').length === 150")
    browser.run("document.querySelectorAll('.question')[1].open = true")
    browser.wait("document.querySelectorAll('.question')[1].querySelectorAll('.answer').length === 3")
    pictures(browser, "evaluations")
    before = browser.run("document.querySelectorAll('.question').length")
    browser.run("[...document.querySelectorAll('input[type=checkbox]')].find((one) => one.parentElement.textContent.includes('differ')).click()")
    browser.wait(f"document.querySelectorAll('.question').length < {before}")
    evaluation("eval-late", 0.5)
    browser.wait("document.querySelectorAll('table.scores tbody tr').length === 6")


def check_profiles(browser):
    tab(browser, "profiles")
    browser.wait("document.querySelectorAll('section.profile').length === 2")
    assert browser.run("document.querySelectorAll('.run').length") == 2
    assert browser.run("document.querySelectorAll('.roofline circle').length") == 9  # all but the one without FLOPs
    assert "packing: true: 1.62 times" in browser.run("document.querySelector('.advice').innerText")
    width = lambda name: browser.run(f"(() => {{ const one = [...document.querySelectorAll('.flame-bar')].find((bar) => bar.innerText === {json.dumps(name)}); "
                                     "return one.getBoundingClientRect().width / document.querySelector('.flame').getBoundingClientRect().width; })()")
    assert abs(width("linear") - 40 / 260) < 0.01, width("linear")
    assert abs(width("backward") - 146 / 260) < 0.01, width("backward")
    cells = browser.run("[...document.querySelectorAll('section.profile .scores')].map((one) => [...one.rows[0].cells, ...one.rows[1].cells].map((cell) => cell.textContent))")
    events = next(one for one in cells if "of DRAM's peak, %" in one)
    half = len(events) // 2
    shown = dict(zip(events[:half], events[half:]))
    assert float(shown["tensor cores, %"]) == 81.25 and float(shown["DRAM read, MB"]) == 750 and "occupancy, %" not in shown, shown
    pictures(browser, "profiles")
    browser.run("document.querySelector('.flame').scrollIntoView()")
    pictures(browser, "flame")
    browser.run("[...document.querySelectorAll('.flame-bar')].find((bar) => bar.innerText === 'forward').click()")
    browser.wait("document.querySelectorAll('.flame-path button').length === 2")
    assert abs(width("linear") - 40 / 90) < 0.01, width("linear")
    browser.run("document.querySelector('.flame-path button').click()")
    browser.wait("document.querySelectorAll('.flame-path button').length === 1")
    browser.run("document.querySelector('.roofline').scrollIntoView({ block: 'center' })")
    box = browser.run("(() => { const b = document.querySelector('.roofline circle').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2)
    browser.wait("document.querySelector('.roofline .legend').textContent.includes('of the limit')")
    profile("profile", 2)  # it is written again
    browser.wait("document.querySelector('section.profile .scores').innerText.includes('110')")


def check_hostile(browser):
    time.sleep(0.5)
    assert browser.run("window.hit") is None
    assert browser.run("document.querySelectorAll('main script, main img, main a, main [onerror]').length") == 0
    assert browser.run("Object.prototype.hit") is None


def check_outage(browser, server, port):
    tab(browser, "curves")
    server.terminate()
    server.wait()
    browser.wait("document.getElementById('state').textContent === 'The server cannot be reached'")
    server, _ = start(port)
    browser.wait("document.getElementById('state').textContent === ''")
    return server


def main():
    append("pretrain", training(5, 1000, 150))
    append("sft", training(5, 300, 60))
    append("grpo", reinforcement(5, 100))
    for step in (50, 100):
        lines(RUNS / "grpo" / "completions" / f"step-{step}.jsonl", completions(step))
    lines(RUNS / "grpo" / "completions" / "eval-step-100.jsonl", completions(100)[:8])
    for name, share in (("eval-pretrain", 0.56), ("eval-sft", 0.64), ("eval-grpo", 0.96)):
        evaluation(name, share)
    profile("profile", 1)
    server, port = start()
    origin = f"http://127.0.0.1:{port}/"
    browser = Browser(FOLDER, PICTURES)
    try:
        browser.size(1280, 860)
        browser.send("Page.navigate", url=origin)
        for check in (check_curves, check_live, check_completions, check_evaluations, check_profiles, check_hostile):
            check(browser)
            print(f"watch: {check.__name__} passes", flush=True)
        server = check_outage(browser, server, port)
        print("watch: check_outage passes")
        outside = [url for url in browser.requests if not url.startswith((origin, "data:", "about:"))]
        assert not outside, outside
        assert not browser.problems, browser.problems
        print(f"watch: {len(browser.requests)} requests, none to another origin")
    finally:
        browser.process.terminate()
        browser.process.wait()
        server.terminate()
        server.wait()


main()

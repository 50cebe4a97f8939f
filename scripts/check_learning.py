"""Compares the curves of the runs of scripts/check_learning.sh, which runs this.
  check_learning.py FOLDER   with the folders hone, hone-fp8 (which may be missing) and torch
Bounds: the lowest and the last validation loss differ from hone's by less than 1%, the lowest at other steps if need
be; the first validation loss and the first training losses differ by less than MOST_FIRST_DIFFERENCE, because weights
and batches are the same; and the variation of the experts' load is below 0.25 in the second half of each run, as a mean
between evaluations."""
import json
import pathlib
import sys

MOST_DIFFERENCE = 0.01  # of validation losses, relative to hone's
MOST_VARIATION = 0.25  # coefficient of variation of the experts' load, mean over layers
FIRST_STEPS = 5
MOST_FIRST_DIFFERENCE = {"float32": 2e-5, "bfloat16": 2e-3, "fp8": 5e-3}  # of losses, relative to hone's


class Run:
    def __init__(self, folder):
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.name = folder.name
        self.losses = {row["step"]: row["eval_loss"] for row in rows if "eval_loss" in row}
        self.train_losses = {row["step"]: row["loss"] for row in rows if "loss" in row}
        self.variations = {row["step"]: row["expert_load_cv"] for row in rows if "expert_load_cv" in row}
        self.best = min(self.losses, key=self.losses.get)
        self.last = max(self.losses)

    def variation(self, begin, end):
        """Returns the mean over steps begin + 1 to end."""
        values = [self.variations[step] for step in range(begin + 1, end + 1)]
        return sum(values) / len(values)


def print_table(hone, others):
    runs = [hone, *others]
    columns = [f"loss {run.name}" for run in runs] + [f"{run.name} - hone" for run in others]
    columns += [f"load {run.name}" for run in runs]
    print("| step | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    before = None
    for step in sorted(hone.losses):
        cells = [f"{run.losses[step]:.4f}" for run in runs]
        cells += [f"{run.losses[step] / hone.losses[step] - 1:+.3%}" for run in others]
        cells += ["" if before is None else f"{run.variation(before, step):.3f}" for run in runs]
        print(f"| {step} | " + " | ".join(cells) + " |")
        before = step


def main():
    folder = pathlib.Path(sys.argv[1])
    dtype = json.loads((folder / "initial" / "config.json").read_text())["torch_dtype"]
    hone = Run(folder / "hone")
    others = [Run(folder / name) for name in ("hone-fp8", "torch") if (folder / name).exists()]
    print_table(hone, others)
    misses = 0

    def check(what, value, bound):
        nonlocal misses
        missed = not value < bound
        misses += missed
        print(f"{'MISSED' if missed else 'met'}: {what}: {value:.3g}, bound {bound:g}")

    def difference(value, reference):
        return abs(value / reference - 1)

    for run in others:
        most = MOST_FIRST_DIFFERENCE["fp8" if run.name == "hone-fp8" else dtype]
        check(f"{run.name}: validation loss before the first step", difference(run.losses[0], hone.losses[0]), most)
        first = max(difference(run.train_losses[step], hone.train_losses[step]) for step in range(1, FIRST_STEPS + 1))
        check(f"{run.name}: training losses of the first {FIRST_STEPS} steps, largest difference", first, most)
        check(f"{run.name}: lowest validation loss (step {run.best}; hone: step {hone.best})",
              difference(run.losses[run.best], hone.losses[hone.best]), MOST_DIFFERENCE)
        check(f"{run.name}: last validation loss (step {run.last})",
              difference(run.losses[run.last], hone.losses[hone.last]), MOST_DIFFERENCE)
    for run in [hone, *others]:
        late = [step for step in sorted(run.losses) if step >= run.last / 2]
        most = max(run.variation(begin, end) for begin, end in zip(late, late[1:]))
        check(f"{run.name}: expert_load_cv after step {late[0]}, largest mean of an interval", most, MOST_VARIATION)
    print(f"learning: {misses} bounds missed")
    sys.exit(misses > 0)


main()

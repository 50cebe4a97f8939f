// The view of evaluations: their scores side by side, and the answers of each to the same questions.
import { figure, svg } from "./chart.js";
import { element, setOptions } from "./dom.js";
import { readResults, readRows } from "./runs.js";

const PAGE = 100;
const percent = (value) => (typeof value === "number" ? `${(100 * value).toFixed(1)}%` : "–");

// A line from 0 to 1 with the interval of a score.
function interval({ value, low, high }, color) {
  const at = (share) => 4 + 168 * Math.min(Math.max(share, 0), 1);
  const made = svg("svg", { class: `interval c${color}`, viewBox: "0 0 176 18", role: "img", "aria-label": percent(value) },
                   svg("line", { class: "track", x1: 4, x2: 172, y1: 9, y2: 9 }));
  if (typeof low === "number" && typeof high === "number") made.append(svg("line", { class: "range", x1: at(low), x2: at(high), y1: 9, y2: 9 }));
  if (typeof value === "number") made.append(svg("circle", { cx: at(value), cy: 9, r: 4 }));
  return made;
}

function table(head, rows) {
  return element("div", { class: "scroll-x" }, element("table", { class: "scores" },
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))))));
}

const isScore = (value) => typeof value === "object" && value !== null && typeof value.value === "number";

function scores(task, evaluations) {
  const rows = [];
  for (const { name, color, results } of evaluations) {
    const result = results.tasks[task];
    for (const [key, value] of Object.entries(result).filter(([, value]) => isScore(value)))
      rows.push([name, key, percent(value.value), value.low == null ? "–" : `${percent(value.low)} to ${percent(value.high)}`,
                 interval(value, color), typeof result.mean_tokens === "number" ? figure(result.mean_tokens) : "–",
                 percent(result.truncated), String(result.problems ?? "–")]);
  }
  return table(["evaluation", "score", "value", "95% interval", "", "tokens per answer", "truncated", "problems"], rows);
}

// Scores by kind of problem, a column for each evaluation; null if no evaluation has kinds.
function kinds(task, evaluations) {
  const rows = new Map();
  evaluations.forEach(({ results }, i) => {
    for (const [column, values] of Object.entries(results.tasks[task].groups ?? {}))
      for (const [value, score] of Object.entries(values ?? {})) {
        const kind = `${column} ${value}`;
        if (!rows.has(kind)) rows.set(kind, { problems: score?.problems, values: evaluations.map(() => "–") });
        rows.get(kind).values[i] = percent(score?.value);
      }
  });
  if (rows.size === 0) return [];
  return [element("h2", {}, "By kind of problem"),
          table(["kind of problem", "problems", ...evaluations.map(({ name }) => name)],
                [...rows].map(([kind, row]) => [kind, String(row.problems ?? "–"), ...row.values]))];
}

const mark = (score) => (score === undefined ? element("span", {}, "–")
  : element("span", { class: score >= 1 ? "right" : "wrong" }, score >= 1 ? "✓" : score > 0 ? figure(score) : "✗"));

export class Evaluations {
  constructor(root, key, fail) {
    this.key = key;
    this.fail = fail;
    this.task = element("select", { label: "Task" });
    this.differ = element("input", { type: "checkbox" });
    this.controls = element("div", { class: "controls" }, this.task);
    this.tables = element("div");
    this.questions = element("div");
    this.more = element("button", {}, "More");
    this.head = element("h2", {}, "Answers");
    this.note = element("div", { class: "empty-note" });
    this.root = element("div", {}, this.controls, this.tables, this.head,
      element("div", { class: "controls" }, element("label", {}, this.differ, "only where the evaluations differ")),
      this.questions, this.more, this.note);
    root.append(this.root);
    this.task.onchange = () => this.draw();
    this.differ.oninput = () => this.drawQuestions();
    this.more.onclick = () => this.loadSamples();
    this.loaded = new Map();  // id -> {age, results, samples}
    this.signature = "";
  }

  // runs: [{id, name, color, results, age}]
  async show(runs) {
    const chosen = runs.filter((run) => run.results);
    for (const run of chosen) {
      // Its results are read again when the file has changed since.
      const known = this.loaded.get(run.id);
      const changed = Date.now() - 1000 * run.age;
      if (known && changed < known.read) continue;
      try {
        const read = Date.now();
        this.loaded.set(run.id, { read, results: await readResults(run.id, this.key()), samples: new Map(), next: { from: 0, check: "" }, done: false });
        this.signature = "";
      } catch (error) {
        this.fail(error);
      }
    }
    this.shown = chosen.filter((run) => this.loaded.has(run.id)).map((run) => ({ ...run, ...this.loaded.get(run.id), kept: this.loaded.get(run.id) }));
    const signature = this.shown.map((one) => `${one.id}/${one.read}`).join("\n");
    if (signature === this.signature) return;
    this.signature = signature;
    const tasks = [...new Set(this.shown.flatMap((one) => Object.keys(one.results.tasks)))];
    setOptions(this.task, tasks.map((task) => [task, task]));
    this.draw();
  }

  of(task) { return this.shown.filter((one) => Object.hasOwn(one.results.tasks, task)); }

  draw() {
    const task = this.task.value;
    const evaluations = this.of(task);
    const some = evaluations.length > 0;
    for (const part of [this.controls, this.tables, this.head, this.head.nextSibling, this.questions]) part.hidden = !some;
    this.note.hidden = some;
    this.note.textContent = "The chosen folders have no evaluations. hone eval writes them.";
    this.more.hidden = true;
    if (!some) return;
    this.tables.replaceChildren(scores(task, evaluations), ...kinds(task, evaluations));
    this.drawQuestions();
    if (evaluations.some((one) => one.kept.samples.size === 0 && !one.kept.done)) this.loadSamples();
  }

  async loadSamples() {
    this.more.hidden = true;
    for (const { id, kept } of this.of(this.task.value)) {
      if (kept.done) continue;
      try {
        const answer = await readRows("samples", this.key(), { run: id, count: PAGE, ...kept.next });
        if (answer.restarted) kept.samples.clear();
        for (const row of answer.rows) {
          const question = `${row.task}\n${row.id}`;
          if (!kept.samples.has(question)) kept.samples.set(question, []);
          kept.samples.get(question).push(row);
        }
        kept.next = { from: answer.next, check: answer.check };
        kept.done = answer.next >= answer.size;
      } catch (error) {
        kept.done = true;
        this.fail(error);
      }
    }
    this.drawQuestions();
  }

  drawQuestions() {
    const task = this.task.value;
    const evaluations = this.of(task);
    const questions = new Map();  // -> [evaluations] of samples
    evaluations.forEach(({ kept }, i) => {
      for (const [question, samples] of kept.samples) {
        if (samples[0].task !== task) continue;
        if (!questions.has(question)) questions.set(question, evaluations.map(() => []));
        questions.get(question)[i] = samples;
      }
    });
    const mean = (samples) => (samples.length === 0 ? undefined : samples.reduce((sum, row) => sum + (row.score ?? 0), 0) / samples.length);
    const rows = [...questions.values()].filter((lists) => !this.differ.checked || new Set(lists.map(mean)).size > 1);
    this.more.hidden = evaluations.every(({ kept }) => kept.done);
    this.questions.replaceChildren(...rows.map((lists) => {
      const sample = lists.find((list) => list.length > 0)[0];
      const answers = element("div", { class: "answers" });
      const made = element("details", { class: "question" },
        element("summary", {}, element("span", { class: "marks" }, ...lists.flatMap((list) => [mark(mean(list)), " "])),
                element("span", { class: "prompt", dir: "auto" }, (sample.prompt ?? "").slice(0, 300))),
        element("div", { class: "foreign", dir: "auto" }, sample.prompt ?? ""),
        element("p", { class: "quiet" }, `The answer is ${sample.gold ?? "unknown"}.`), answers);
      made.ontoggle = () => {
        if (!made.open || answers.firstChild) return;
        answers.append(...lists.flatMap((list, i) => list.slice(0, 8).map((row) => element("div", { class: "answer" },
          element("div", { class: "chips" }, element("b", { class: `c${evaluations[i].color}` }, evaluations[i].name), mark(row.score),
                  element("span", { class: "chip" }, `${row.tokens ?? "–"} tokens`), ...(row.ended === false ? [element("span", { class: "chip" }, "truncated")] : [])),
          element("div", { class: "foreign", dir: "auto" }, row.completion)))));
      };
      return made;
    }));
  }
}

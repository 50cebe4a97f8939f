// The view of curves: a chart for each metric, or for metrics that belong together.
import { Chart } from "./chart.js";
import { element } from "./dom.js";

// The charts that come first, in this order. A chart takes every metric that its pattern matches.
const FIRST = [
  ["loss", /^(eval_)?loss$/],
  ["rewards", /^(eval_)?reward(\/(?!total$).+)?$/],
  ["length of completions", /^(eval_)?completions\/(mean|max|min)_length$/],
  ["accuracy of tokens", /^(eval_)?mean_token_accuracy$/],
  ["benchmarks", /^benchmarks\//],
  ["entropy", /^(eval_)?entropy$/],
  ["kl", /^(eval_)?kl$/],
  ["gradient norm", /^grad_norm$/],
  ["learning rate", /^learning_rate$/],
  ["tokens per second", /^tokens_per_second$/],
];

// Returns [title, names] of the charts of these metrics: those that come first, then the others.
export function chartsOf(names, several) {
  const left = new Set(names);
  const first = [];
  for (const [title, pattern] of FIRST) {
    const found = names.filter((name) => pattern.test(name));
    for (const name of found) left.delete(name);
    // Curves of several runs differ by color, so that a chart has one metric and its evaluation only.
    const parts = several ? [...new Set(found.map((name) => name.replace(/^eval_/, "")))] : [null];
    for (const part of parts) {
      const names = part === null ? found : found.filter((name) => name.replace(/^eval_/, "") === part);
      if (names.length > 0) first.push([part === null ? title : part, names]);
    }
  }
  const others = [...new Set([...left].map((name) => name.replace(/^eval_/, "")))].sort();
  return [first, others.map((base) => [base, [base, `eval_${base}`].filter((name) => left.has(name))])];
}

export class Curves {
  constructor(root) {
    this.charts = new Map();
    this.smoothing = element("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0 });
    this.across = element("select", {}, element("option", { value: "step" }, "step"), element("option", { value: "tokens" }, "tokens"));
    this.log = element("input", { type: "checkbox" });
    this.words = element("input", { type: "search", placeholder: "Metric", label: "Metrics whose name has this text" });
    for (const control of [this.smoothing, this.across, this.log, this.words]) control.oninput = () => this.draw();
    this.first = element("div", { class: "charts" });
    this.others = element("div", { class: "charts" });
    this.more = element("details", { class: "more" }, element("summary", {}, "More metrics"), this.others);
    this.more.ontoggle = () => this.draw();
    this.note = element("div", { class: "empty-note" });
    this.root = element("div", {},
      element("div", { class: "controls" }, element("label", {}, "Smoothing", this.smoothing), element("label", {}, "over", this.across),
              element("label", {}, this.log, "logarithmic"), this.words),
      this.first, this.more, this.note);
    root.append(this.root);
    this.runs = [];
  }

  // runs: [{name, color, metrics}]
  show(runs) {
    this.runs = runs;
    this.draw();
  }

  draw() {
    const names = [...new Set(this.runs.flatMap((run) => [...run.metrics.series.keys()]))]
      .filter((name) => name.toLowerCase().includes(this.words.value.trim().toLowerCase()));
    const [first, others] = chartsOf(names, this.runs.length > 1);
    this.fill(this.first, first);
    this.more.hidden = others.length === 0;
    this.more.firstChild.textContent = `${others.length} more metrics`;
    this.fill(this.others, this.more.open ? others : []);
    this.note.hidden = names.length > 0;
    this.note.textContent = this.runs.length === 0 ? "Choose a run on the left." : "There are no metrics yet.";
  }

  fill(parent, charts) {
    const shown = charts.map(([title, names]) => {
      if (!this.charts.has(title)) this.charts.set(title, new Chart(title));
      const chart = this.charts.get(title);
      chart.draw(this.curvesOf(names), { smoothing: Number(this.smoothing.value), log: this.log.checked });
      return chart.root;
    });
    if (shown.length !== parent.children.length || shown.some((root, i) => parent.children[i] !== root)) parent.replaceChildren(...shown);
  }

  curvesOf(names) {
    const several = this.runs.length > 1;
    return this.runs.flatMap((run) => names.filter((name) => run.metrics.series.has(name)).map((name, i) => {
      const series = run.metrics.series.get(name);
      const dashed = name.startsWith("eval_") && names.length > 1;
      return { label: several ? `${run.name}${dashed ? " eval" : ""}` : name, color: several ? run.color : i % 8, dashed,
               x: this.across.value === "step" ? series.step : series.tokens, y: series.value };
    }));
  }
}

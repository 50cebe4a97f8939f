// The view of completions: those of a step of hone grpo, by prompt, with their rewards.
import { figure } from "./chart.js";
import { element, setOptions } from "./dom.js";
import { readRows } from "./runs.js";

const PAGE = 100;

function chip(name, value, good) {
  const kind = good === undefined ? "chip" : good ? "chip good" : "chip bad";
  return element("span", { class: kind }, `${name} `, element("b", {}, typeof value === "number" ? figure(value) : "n/a"));
}

export function answerCard(row) {
  const chips = Object.entries(row.rewards ?? {}).map(([name, value]) => chip(name, value));
  if (typeof row.advantage === "number") chips.push(chip("advantage", row.advantage, row.advantage >= 0));
  if (row.finish_reason && row.finish_reason !== "stop") chips.push(element("span", { class: "chip" }, row.finish_reason));
  return element("div", { class: "answer" }, element("div", { class: "chips" }, ...chips),
                 element("div", { class: "foreign", dir: "auto" }, row.completion));
}

export class Completions {
  constructor(root, key, fail) {
    this.key = key;
    this.fail = fail;
    this.run = element("select", { label: "Run" });
    this.file = element("select", { label: "Step" });
    this.earlier = element("button", { label: "Earlier step" }, "‹");
    this.later = element("button", { label: "Later step" }, "›");
    this.words = element("input", { type: "search", placeholder: "Text", label: "Completions that contain this text" });
    this.groups = element("div");
    this.more = element("button", {}, "More");
    this.note = element("div", { class: "empty-note" });
    this.root = element("div", {},
      element("div", { class: "controls" }, this.run, element("span", {}, this.earlier, " ", this.file, " ", this.later), this.words),
      this.groups, this.more, this.note);
    root.append(this.root);
    this.run.onchange = () => { this.chosen = null; this.show(this.runs); };
    this.file.onchange = () => { this.chosen = this.file.value; this.load(); };
    this.earlier.onclick = () => this.step(-1);
    this.later.onclick = () => this.step(1);
    this.more.onclick = () => this.load(true);
    this.words.oninput = () => this.draw();
    this.runs = [];
    this.chosen = null;  // a file that was chosen; null: the last one, as the run continues
    this.shown = "";
    this.rows = [];
  }

  // runs: [{id, name, completions}]
  show(runs) {
    this.runs = runs.filter((run) => run.completions.length > 0);
    setOptions(this.run, this.runs.map((run) => [run.id, run.name]));
    const files = this.runs.find((run) => run.id === this.run.value)?.completions ?? [];
    if (!files.includes(this.chosen)) this.chosen = null;
    setOptions(this.file, files.map((file) => [file, file.replaceAll("-", " ")]));
    this.file.value = this.chosen ?? files.filter((file) => !file.startsWith("eval")).at(-1) ?? files.at(-1) ?? "";
    this.root.firstChild.hidden = this.runs.length === 0;
    this.note.hidden = this.runs.length > 0;
    this.note.textContent = "The chosen runs have no completions. hone grpo writes them.";
    if (`${this.run.value} ${this.file.value}` !== this.shown) this.load();
  }

  step(by) {
    const next = this.file.options[this.file.selectedIndex + by];
    if (!next) return;
    this.file.value = next.value;
    this.chosen = this.file.selectedIndex === this.file.options.length - 1 ? null : next.value;
    this.load();
  }

  async load(continues = false) {
    this.shown = `${this.run.value} ${this.file.value}`;
    if (!continues) { this.rows = []; this.next = { from: 0, check: "" }; }
    this.more.hidden = true;
    if (!this.run.value || !this.file.value) return this.draw();
    const asked = this.shown;
    try {
      const answer = await readRows("completions", this.key(), { run: this.run.value, file: this.file.value, count: PAGE, ...this.next });
      if (asked !== this.shown) return;
      if (answer.restarted) this.rows = [];
      this.rows.push(...answer.rows);
      this.next = { from: answer.next, check: answer.check };
      this.more.hidden = answer.next >= answer.size;
    } catch (error) {
      this.fail(error);
    }
    this.draw();
  }

  draw() {
    const words = this.words.value.trim().toLowerCase();
    const groups = new Map();
    for (const row of this.rows) {
      if (words && !`${row.prompt ?? ""}\n${row.completion}`.toLowerCase().includes(words)) continue;
      if (!groups.has(row.row)) groups.set(row.row, []);
      groups.get(row.row).push(row);
    }
    this.groups.replaceChildren(...[...groups.values()].map((rows) => element("section", { class: "group" },
      element("header", {}, element("div", { class: "foreign", dir: "auto" }, rows[0].prompt ?? "")),
      element("div", { class: "answers" }, ...rows.map(answerCard)))));
  }
}

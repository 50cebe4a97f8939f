// The view of profiles: where the time of a step goes, how close its operations are to the device's limits, and advice.
import { colorOf } from "./categories.js";
import { figure } from "./chart.js";
import { element } from "./dom.js";
import { Flame, flameOf } from "./flame.js";
import { roofline } from "./roofline.js";
import { readProfile } from "./runs.js";

const number = (value) => (typeof value === "number" ? value : 0);
const text = (value) => (typeof value === "string" ? value : "");
const list = (value) => (Array.isArray(value) ? value.filter((one) => typeof one === "object" && one !== null) : []);
const percent = (value) => `${(100 * number(value)).toFixed(1)}%`;

function table(head, rows, texts) {
  return element("div", { class: "scroll-x" }, element("table", { class: `scores texts-${texts}` },
    element("thead", {}, element("tr", {}, ...head.map((one) => element("th", { scope: "col" }, one)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))))));
}

function bars(title, parts, color) {
  const most = Math.max(...parts.map((one) => number(one.ms)), 1e-9);
  const rows = parts.map((one) => {
    const bar = element("span", { class: `bar-line c${color(text(one.name))}` });
    bar.style.width = `${100 * number(one.ms) / most}%`;
    return element("div", { class: "bar-row" }, element("span", { class: "bar-name" }, text(one.name)),
                   element("span", { class: "bar-track" }, bar),
                   element("span", { class: "bar-figure" }, `${figure(number(one.ms))} ms`),
                   element("span", { class: "bar-figure" }, percent(one.share)));
  });
  return element("figure", { class: "chart" }, element("h3", {}, title), ...rows);
}

function kernelTable(profile) {
  return table(["operation", "module", "phase", "calls", "ms", "share", "GFLOP/s", "GB/s", "of roofline"],
    list(profile.kernels).slice(0, 30).map((one) => [text(one.op), text(one.module), text(one.phase), figure(number(one.runs)),
      figure(number(one.ms)), percent(one.share), figure(1e3 * number(one.tflops)), figure(number(one.gbps)),
      percent(one.of_possible)]), 3);
}

// Figures of counted events: [key in kernel_summary.json, title, scale].
const COUNTED = [["cores", "cores", 1], ["ghz", "GHz", 1], ["instructions_per_cycle", "instr/cycle", 1], ["missed_gbps", "missed GB/s", 1],
                 ["page_faults", "page faults", 1], ["context_switches", "switches", 1], ["dram_read_bytes", "DRAM read, MB", 1e-6],
                 ["dram_written_bytes", "written, MB", 1e-6], ["dram_share", "of DRAM's peak, %", 100], ["tensor_share", "tensor cores, %", 100],
                 ["occupancy", "occupancy, %", 100], ["l2_hit_rate", "L2 hits, %", 100], ["gpu_instructions", "instr, M", 1e-6]];

function countedTable(title, names, rows) {
  if (rows.length === 0) return [];
  const columns = COUNTED.filter(([key]) => rows.some((one) => typeof one[key] === "number"));
  return [element("h3", {}, title), table([...names, "calls", "ms", ...columns.map(([, name]) => name)],
    rows.slice(0, 30).map((one) => [...names.map((name) => text(one[name === "operation" ? "op" : name])), figure(number(one.runs)),
      figure(number(one.ms)), ...columns.map(([key, , scale]) => (typeof one[key] === "number" ? figure(scale * one[key]) : ""))]), names.length)];
}

function counterTables(profile) {
  const counters = profile.counters;
  if (typeof counters !== "object" || counters === null) return [];
  return [...countedTable(`Hardware events per ${text(counters.of) || "step"}`, ["operation", "module", "phase"], list(counters.kernels)),
          ...countedTable("Kernels", ["kernel"], list(counters.launched)),
          ...(text(counters.refusal) ? [element("p", { class: "quiet" }, text(counters.refusal))] : [])];
}

function adviceList(profile) {
  const advice = list(profile.advice);
  if (advice.length === 0) return [];
  return [element("h3", {}, "Advice"), element("ul", { class: "advice" }, ...advice.map((one) => element("li", {},
    ...(number(one.gain) > 0 ? [element("span", { class: "chip good" }, `× ${number(one.gain).toFixed(2)}`), " "] : []), text(one.text))))];
}

function trialTable(profile) {
  const trials = list(profile.trials);
  if (trials.length === 0) return [];
  return [element("h3", {}, "Settings that were tried"), table(["settings", "gain", "ms a step", "tokens/s"], trials.map((one) => [
    Object.entries(one.settings ?? {}).map(([key, value]) => `${key}: ${value}`).join(", "),
    typeof one.gain === "number" ? `× ${one.gain.toFixed(2)}` : text(one.refusal), figure(number(one.step_ms) || NaN),
    figure(number(one.tokens_per_second) || NaN)]), 1)];
}

function headline(profile) {
  const step = number(profile.unprofiled_step_ms) || number(profile.step_ms);
  const rate = number(profile.tokens_per_step) / step * 1e3;
  return `${text(profile.what)} on ${text(profile.machine)}: ${figure(step)} ms a step, ${figure(rate)} tokens/s`;
}

function section(name, profile) {
  const made = element("section", { class: "profile" }, element("h2", { dir: "auto" }, name), element("p", { class: "quiet" }, headline(profile)));
  made.append(...adviceList(profile));
  if (list(profile.kernels).length > 0) {
    made.append(element("div", { class: "charts" }, roofline(profile), bars("Time by category", list(profile.categories), colorOf),
                        bars("Time by module", list(profile.modules), () => 0)),
                element("h3", {}, "A step, by phase, module and operation"), new Flame(flameOf(profile)).root,
                element("h3", {}, "Operations"), kernelTable(profile), ...counterTables(profile));
  } else {
    made.append(element("div", { class: "charts" }, bars("Time by phase", list(profile.phases), () => 0),
                        bars("Rewards", list(profile.rewards).map((one) => ({ ...one, share: number(one.ms) / number(profile.step_ms) })), () => 1)));
  }
  made.append(...trialTable(profile));
  return made;
}

export class Profiles {
  constructor(root, key, fail) {
    this.key = key;
    this.fail = fail;
    this.sections = element("div");
    this.note = element("div", { class: "empty-note" }, "The chosen folders have no profiles. hone profile writes them.");
    this.root = element("div", {}, this.sections, this.note);
    root.append(this.root);
    this.loaded = new Map();  // id -> {read, made}
    this.signature = null;
  }

  // runs: [{id, name, profile, age}]
  async show(runs) {
    for (const run of runs) {
      const known = this.loaded.get(run.id);
      if (known && Date.now() - 1000 * run.age < known.read) continue;  // its file has not changed since
      try {
        const read = Date.now();
        this.loaded.set(run.id, { read, made: section(run.name, await readProfile(run.id, this.key())) });
      } catch (error) {
        this.fail(error);
      }
    }
    const shown = runs.filter((run) => this.loaded.has(run.id)).map((run) => this.loaded.get(run.id));
    const signature = runs.map((run) => `${run.id}/${this.loaded.get(run.id)?.read}`).join("\n");
    if (signature === this.signature) return;
    this.signature = signature;
    this.sections.replaceChildren(...shown.map((one) => one.made));
    this.note.hidden = shown.length > 0;
  }
}

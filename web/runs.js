// The runs of the server: what there is, and the metrics of each, read further as their files grow.
import { ApiError, request } from "./api.js";

const query = (parameters) => new URLSearchParams(parameters).toString();

export async function listRuns(key) { return (await request("runs", key, { cache: "no-store" })).json(); }

// Reads a file of a run from a position on. Returns {rows, bad, restarted, next, check, size}.
export async function readRows(kind, key, parameters) {
  return (await request(`runs/${kind}?${query(parameters)}`, key, { cache: "no-store" })).json();
}
export async function readResults(run, key) {
  return (await request(`runs/results?${query({ run })}`, key, { cache: "no-store" })).json();
}
export async function readProfile(run, key) {
  return (await request(`runs/profile?${query({ run })}`, key, { cache: "no-store" })).json();
}

// Beyond this many points every second one of a metric is dropped, which a curve of 480 pixels does not show.
const MOST_POINTS = 20000;

// The metrics of a run. Names are of the run's making, so that they are keys of maps, never of objects.
export class Metrics {
  constructor(id) {
    this.id = id;
    this.forget();
  }

  forget() {
    this.next = 0;
    this.check = "";
    this.bad = 0;
    this.last = null;        // the last step
    this.series = new Map();  // name -> {step: [], tokens: [], value: []}
  }

  // Reads what the file has gained. Returns true if there was something new.
  async update(key) {
    let changed = false;
    for (;;) {
      const answer = await readRows("metrics", key, { run: this.id, from: this.next, check: this.check });
      if (answer.restarted) this.forget();
      this.bad += answer.bad;
      for (const row of answer.rows) this.add(row);
      changed ||= answer.restarted || answer.rows.length > 0 || answer.bad > 0;
      const still = answer.next > this.next;
      this.next = answer.next;
      this.check = answer.check;
      if (!still || this.next >= answer.size) return changed;
    }
  }

  add(row) {
    // A run that was resumed writes the steps after its checkpoint again.
    if (this.last !== null && row.step < this.last) this.cut(row.step);
    this.last = row.step;
    const tokens = typeof row.num_tokens === "number" ? row.num_tokens : null;
    for (const [name, value] of Object.entries(row)) {
      if (name === "step") continue;
      if (!this.series.has(name)) this.series.set(name, { step: [], tokens: [], value: [] });
      const series = this.series.get(name);
      series.step.push(row.step);
      series.tokens.push(tokens ?? series.tokens.at(-1) ?? 0);
      series.value.push(value);
      if (series.step.length > MOST_POINTS)
        for (const part of Object.keys(series)) series[part] = series[part].filter((_, i) => i % 2 === 0);
    }
  }

  cut(step) {
    for (const series of this.series.values()) {
      const count = series.step.findIndex((one) => one >= step);
      if (count >= 0) for (const part of Object.values(series)) part.length = count;
    }
  }
}

export { ApiError };

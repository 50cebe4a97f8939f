// Draws curves as SVG.
import { element } from "./dom.js";

const WIDTH = 480, HEIGHT = 236, LEFT = 50, RIGHT = 8, TOP = 8, BOTTOM = 24;

export function svg(name, properties = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A number with at most four digits that count: 0.0123, 1.235, 12,345, 1.2e-7.
export function figure(value) {
  if (!Number.isFinite(value)) return "n/a";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

// Positions of at most `most` lines at round values.
export function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const made = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && made.length <= most + 1; ++i) made.push(i * step);
  return made;
}

// Moving average with weights that fall by `factor` for each point; the first points count as much as they should.
export function smoothed(values, factor) {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    sum = sum * factor + value;
    weight = weight * factor + 1;
    return sum / weight;
  });
}

// Keeps the first, lowest, highest and last point of each column of pixels.
export function thinned(points, columns) {
  if (points.length <= columns * 4) return points;
  const kept = [];
  const size = points.length / columns;
  for (let column = 0; column < columns; ++column) {
    const part = points.slice(Math.floor(column * size), Math.floor((column + 1) * size));
    let low = 0, high = 0;
    part.forEach(([, y], i) => { if (!(y >= part[low][1])) low = i; if (!(y <= part[high][1])) high = i; });
    kept.push(...[...new Set([0, low, high, part.length - 1])].sort((a, b) => a - b).map((i) => part[i]));
  }
  return kept;
}

function bounds(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return null;
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; return [low - room, high + room]; }
  return [low, high];
}

// A chart. draw() takes curves {label, color, x, y, dashed} (x ascending, y may have null) and {smoothing, log}.
export class Chart {
  constructor(title) {
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
    this.legend = element("div", { class: "legend" });
    this.root = element("figure", { class: "chart" }, element("h3", {}, title), this.picture, this.legend);
    this.curves = [];
    this.picture.onpointermove = (event) => this.point(event);
    this.picture.onpointerleave = () => this.point(null);
  }

  draw(curves, { smoothing, log }) {
    this.curves = curves.map((curve) => ({ ...curve, shown: smoothing > 0 ? smoothed(curve.y, smoothing) : curve.y }));
    const values = this.curves.flatMap((curve) => (smoothing > 0 ? curve.y.concat(curve.shown) : curve.y))
      .filter((value) => Number.isFinite(value) && (!log || value > 0));
    const across = bounds(this.curves.flatMap((curve) => curve.x));
    const up = bounds(log ? values.map(Math.log10) : values);
    this.picture.replaceChildren();
    if (!across || !up) {
      this.picture.append(svg("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "no values yet"));
      return this.list(null);
    }
    const room = (up[1] - up[0]) * 0.04;
    const [low, high] = [up[0] - room, up[1] + room];
    this.toX = (x) => LEFT + (x - across[0]) / (across[1] - across[0]) * (WIDTH - LEFT - RIGHT);
    this.fromX = (x) => across[0] + (x - LEFT) / (WIDTH - LEFT - RIGHT) * (across[1] - across[0]);
    this.toY = (y) => HEIGHT - BOTTOM - ((log ? Math.log10(y) : y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    this.axes(across, [low, high], log);
    for (const curve of this.curves) {
      if (smoothing > 0) this.line(curve, curve.y, log, "faint");
      this.line(curve, curve.shown, log, curve.dashed ? "dashed" : "");
    }
    this.cursor = svg("g");
    this.picture.append(this.cursor);
    this.list(null);
  }

  axes(across, up, log) {
    for (const value of ticks(up[0], up[1], 6)) {
      const y = this.toY(log ? 10 ** value : value);
      this.picture.append(svg("line", { class: "grid-line", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }),
                          svg("text", { x: LEFT - 6, y: y + 3.5, "text-anchor": "end" }, figure(log ? 10 ** value : value)));
    }
    for (const value of ticks(across[0], across[1], 6)) {
      const x = this.toX(value);
      const anchor = x > WIDTH - 30 ? "end" : "middle";
      this.picture.append(svg("text", { x, y: HEIGHT - 7, "text-anchor": anchor }, figure(value)));
    }
  }

  line(curve, values, log, kind) {
    const points = thinned(curve.x.map((x, i) => [x, values[i]]), WIDTH);
    let path = "", open = false, drawn = 0, last = null;
    for (const [x, y] of points) {
      const there = Number.isFinite(y) && (!log || y > 0);
      if (there) {
        last = [this.toX(x), this.toY(y)];
        path += `${open ? "L" : "M"}${last[0].toFixed(1)} ${last[1].toFixed(1)}`;
        ++drawn;
      }
      open = there;
    }
    if (drawn === 0) return;
    this.picture.append(svg("path", { class: `c${curve.color} ${kind}`, d: path }));
    if (drawn === 1) this.picture.append(svg("circle", { class: `c${curve.color}`, cx: last[0], cy: last[1], r: 2.5 }));
  }

  // Shows the values at the step under the pointer.
  point(event) {
    if (!this.cursor) return;
    this.cursor.replaceChildren();
    if (event === null) return this.list(null);
    const box = this.picture.getBoundingClientRect();
    const at = this.fromX((event.clientX - box.left) / box.width * WIDTH);
    const steps = this.curves.flatMap((curve) => curve.x);
    const near = steps.reduce((best, x) => (Math.abs(x - at) < Math.abs(best - at) ? x : best), steps[0]);
    const x = this.toX(near);
    this.cursor.append(svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    this.list(near);
  }

  // Lists the curves with their values at a step, or with their last ones.
  list(at) {
    this.legend.replaceChildren(...this.curves.map((curve) => {
      const index = at === null ? curve.shown.length - 1 : curve.x.lastIndexOf(at);
      const value = index < 0 ? "–" : figure(curve.shown[index] ?? NaN);
      return element("span", {}, element("i", { class: `c${curve.color}${curve.dashed ? " dashed" : ""}` }), curve.label,
                     element("b", {}, value));
    }), ...(at === null ? [] : [element("span", {}, `at ${figure(at)}`)]));
  }
}

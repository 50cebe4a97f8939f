// A roofline: each operation by its FLOPs per byte and its rate, under the limits of the device.
import { CATEGORIES, colorOf } from "./categories.js";
import { figure, svg } from "./chart.js";
import { element } from "./dom.js";

const WIDTH = 480, HEIGHT = 300, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 34;

// Powers of ten from low to high, both as logarithms, of which at most eight are shown.
function decades(low, high) {
  const step = Math.max(Math.ceil((high - low) / 8), 1);
  const made = [];
  for (let power = Math.ceil(low); power <= high; power += step) made.push(power);
  return made;
}

// Operations that have both FLOPs and bytes.
function points(profile) {
  const kernels = Array.isArray(profile.kernels) ? profile.kernels : [];
  return kernels.filter((one) => one?.flops > 0 && one.bytes > 0 && one.ms > 0).map((one) => ({
    name: `${one.op} (${one.module}, ${one.phase})`, color: colorOf(one.category), share: one.share ?? 0,
    x: Math.log10(one.flops / one.bytes), y: Math.log10(one.flops / one.ms * 1e3), of: one.of_possible ?? 0 }));
}

export function roofline(profile) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Roofline" });
  const legend = element("div", { class: "legend" });
  const root = element("figure", { class: "chart roofline" }, element("h3", {}, "Roofline"), picture, legend);
  const shown = points(profile);
  const bandwidth = 1e9 * (profile.limits?.copy_gbps ?? 0), peak = 1e12 * (profile.limits?.product_tflops ?? 0);
  if (shown.length === 0 || bandwidth <= 0 || peak <= 0) {
    picture.append(svg("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "no operation has FLOPs"));
    return root;
  }
  const ridge = Math.log10(peak / bandwidth);
  const x = [Math.min(...shown.map((one) => one.x), ridge - 1) - 0.2, Math.max(...shown.map((one) => one.x), ridge + 1) + 0.2];
  const y = [Math.min(...shown.map((one) => one.y), Math.log10(peak) - 2) - 0.2, Math.max(...shown.map((one) => one.y), Math.log10(peak)) + 0.3];
  const toX = (value) => LEFT + (value - x[0]) / (x[1] - x[0]) * (WIDTH - LEFT - RIGHT);
  const toY = (value) => HEIGHT - BOTTOM - (value - y[0]) / (y[1] - y[0]) * (HEIGHT - TOP - BOTTOM);
  for (const power of decades(...y)) {
    picture.append(svg("line", { class: "grid-line", x1: LEFT, x2: WIDTH - RIGHT, y1: toY(power), y2: toY(power) }),
                   svg("text", { x: LEFT - 6, y: toY(power) + 3.5, "text-anchor": "end" }, figure(10 ** (power - 9))));
  }
  for (const power of decades(...x)) picture.append(svg("text", { x: toX(power), y: HEIGHT - 19, "text-anchor": "middle" }, figure(10 ** power)));
  const start = Math.max(x[0], y[0] - Math.log10(bandwidth));
  picture.append(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, "FLOP per byte"),
                 svg("text", { x: LEFT + 4, y: TOP + 8 }, "GFLOP/s"),
                 svg("path", { class: "limit", d: `M${toX(start)} ${toY(start + Math.log10(bandwidth))}L${toX(ridge)} ${toY(Math.log10(peak))}L${WIDTH - RIGHT} ${toY(Math.log10(peak))}` }));
  const note = (one) => legend.replaceChildren(...(one === null
    ? [...new Set(shown.map((each) => each.color))].sort().map((color) => element("span", {}, element("i", { class: `dot c${color}` }), CATEGORIES[color]))
    : [element("span", {}, element("i", { class: `dot c${one.color}` }), one.name, element("b", {},
        `${figure(10 ** (one.y - 9))} GFLOP/s, ${(100 * one.of).toFixed(1)}% of the limit, ${(100 * one.share).toFixed(1)}% of the step`))]));
  for (const one of [...shown].sort((a, b) => b.share - a.share)) {
    const dot = svg("circle", { class: `c${one.color}`, cx: toX(one.x), cy: toY(one.y), r: 2.5 + 14 * Math.sqrt(one.share) },
                    svg("title", {}, one.name));
    dot.onpointerenter = () => note(one);
    dot.onpointerleave = () => note(null);
    picture.append(dot);
  }
  note(null);
  return root;
}

// A flame view: parts of a step as nested bars, as wide as their share. A click on a bar shows it as the whole.
import { colorOf } from "./categories.js";
import { figure } from "./chart.js";
import { element } from "./dom.js";

const LEAST = 0.002;  // share of the whole below which a bar is left out

function child(parent, name) {
  if (!parent.parts.has(name)) parent.parts.set(name, { name, ms: 0, color: null, parts: new Map() });
  return parent.parts.get(name);
}

// The tree of a profile: step, phase, module by its parts, operation. {name, ms, color, parts: Map}
export function flameOf(profile) {
  const root = { name: "step", ms: 0, color: null, parts: new Map() };
  for (const kernel of Array.isArray(profile.kernels) ? profile.kernels : []) {
    if (typeof kernel?.ms !== "number") continue;
    const module = String(kernel.module ?? "");
    const path = [String(kernel.phase ?? ""), ...(module === kernel.phase ? [] : module.split(".")), String(kernel.op ?? "")];
    let at = root;
    root.ms += kernel.ms;
    for (const name of path) {
      at = child(at, name);
      at.ms += kernel.ms;
    }
    at.color = colorOf(kernel.category);
  }
  const between = Math.max((profile.step_ms ?? 0) - root.ms, 0);
  root.ms += between;
  Object.assign(child(root, "between operations"), { ms: between, color: colorOf("other") });
  return root;
}

export class Flame {
  constructor(tree) {
    this.tree = tree;
    this.path = element("div", { class: "flame-path" });
    this.bars = element("div", { class: "flame" });
    this.root = element("div", {}, this.path, this.bars);
    this.show([tree]);
  }

  // ancestors: the bars from the whole step to the one that is shown.
  show(ancestors) {
    const shown = ancestors.at(-1);
    this.path.replaceChildren(...ancestors.map((node, i) => {
      const step = element("button", { disabled: i === ancestors.length - 1 }, node.name);
      step.onclick = () => this.show(ancestors.slice(0, i + 1));
      return step;
    }), element("span", { class: "quiet" }, `${figure(shown.ms)} ms, ${(100 * shown.ms / this.tree.ms).toFixed(1)}% of the step`));
    this.bars.replaceChildren(this.bar(shown, shown, ancestors));
  }

  bar(node, whole, ancestors) {
    const share = `${(100 * node.ms / this.tree.ms).toFixed(1)}%`;
    const label = element("button", { class: node.color === null ? "flame-bar" : `flame-bar leaf c${node.color}`, title: `${node.name}: ${figure(node.ms)} ms, ${share}` },
                          element("span", {}, node.name));
    label.onclick = () => this.show(ancestors);
    const parts = [...node.parts.values()].filter((part) => part.ms >= LEAST * whole.ms).sort((a, b) => b.ms - a.ms);
    const row = element("div", { class: "flame-row" }, ...parts.map((part) => {
      const made = this.bar(part, whole, [...ancestors, part]);
      made.style.width = `${100 * part.ms / node.ms}%`;
      return made;
    }));
    return element("div", { class: "flame-node" }, label, row);
  }
}

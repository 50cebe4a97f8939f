// Elements of messages.
import { element } from "./dom.js";
import { show } from "./markdown.js";

const seconds = (ms) => ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;

// Shows what an answer has so far. Only what has changed is built again.
export function showAnswer(shown, message, running) {
  const thought = message.thought ?? "";
  shown.thought.hidden = !thought;
  if (thought) {
    shown.summary.textContent = message.thoughtTime === undefined ? "Thinking…" : `Thought for ${seconds(message.thoughtTime)}`;
    // Hidden thoughts are built when they are opened.
    if (shown.thought.open) show(shown.thoughtText, thought);
  }
  show(shown.text, message.content);
  shown.error.textContent = message.error ?? "";
  shown.error.hidden = !message.error;
  const figures = [];
  if (message.tokens) {
    figures.push(`${message.tokens} tokens`);
    if (message.time > 0) figures.push(`${(message.tokens / (message.time / 1000)).toFixed(1)} tokens/s`);
  }
  if (message.finish === "length") figures.push("cut at max_tokens");
  if (message.finish === "stopped") figures.push("stopped");
  shown.figures.textContent = running ? "" : figures.join(" · ");
}

function answer(message) {
  const shown = { summary: element("summary"), thoughtText: element("div"), text: element("div", { class: "body text" }),
                  error: element("div", { class: "error" }), figures: element("span", { class: "figures" }) };
  shown.thought = element("details", { class: "thought" }, shown.summary, shown.thoughtText);
  shown.thoughtText.className = "body text";
  shown.thought.ontoggle = () => { if (shown.thought.open) show(shown.thoughtText, message.thought ?? ""); };
  return shown;
}

function branches(siblings, message, actions) {
  if (siblings.length < 2) return [];
  const at = siblings.indexOf(message);
  const step = (by, sign, label) => {
    const button = element("button", { label, disabled: !siblings[at + by] }, sign);
    button.onclick = () => actions.choose(siblings[at + by]);
    return button;
  };
  return [step(-1, "‹", "Previous version"), element("span", {}, `${at + 1}/${siblings.length}`), step(1, "›", "Next version")];
}

function action(name, run) {
  const button = element("button", {}, name);
  button.onclick = run;
  return button;
}

function edit(made, message, actions) {
  const area = element("textarea", { value: message.content, rows: Math.min(12, message.content.split("\n").length + 1), label: "Edit the message" });
  const finish = () => { if (area.value.trim()) actions.edit(message, area.value); };
  area.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); finish(); }
    if (event.key === "Escape") { event.stopPropagation(); actions.draw(); }
  };
  made.replaceChildren(area, element("div", { class: "tools" }, action("Cancel", actions.draw), action("Send", finish)));
  area.focus();
}

// Returns the element of a message and, for an answer, its parts as `shown`.
export function messageElement(message, siblings, actions) {
  const made = element("article", { class: `message ${message.role}` });
  const copy = action("Copy", () => navigator.clipboard?.writeText(message.content));
  if (message.role === "user") {
    made.append(element("div", { class: "body" }, message.content),
                element("div", { class: "tools" }, ...branches(siblings, message, actions), copy,
                        action("Edit", () => edit(made, message, actions))));
    return made;
  }
  const shown = answer(message);
  made.shown = shown;
  made.append(shown.thought, shown.text, shown.error,
              element("div", { class: "tools" }, ...branches(siblings, message, actions), copy,
                      action("Regenerate", () => actions.regenerate(message)), shown.figures));
  showAnswer(shown, message, false);
  return made;
}

// Builds elements. Text becomes text nodes only, so that no text of a model can become markup.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key === "label") made.setAttribute("aria-label", value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

// Gives a select the options [value, text], unless it has them: one that is open stays open.
export function setOptions(select, options) {
  const now = [...select.options].map((option) => [option.value, option.text]);
  if (JSON.stringify(now) === JSON.stringify(options)) return;
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

// Shows Markdown (paragraphs, headings, lists, quotes, tables, code, emphasis, links) with LaTeX as elements. Markup in
// the text stays text, and a link is one only if it is http, https or mailto.
import { element } from "./dom.js";
import { highlight } from "./highlight.js";
import { mathElement } from "./math.js";

// Quantifiers are bounded, so that a text without ends of its spans takes linear time.
const INLINE = new RegExp([
  "(?<code>(`+)(?!`)([\\s\\S]{1,2000}?)(?<!`)\\2(?!`))",
  "(?<display>\\$\\$([\\s\\S]{1,2000}?)\\$\\$|\\\\\\[([\\s\\S]{1,2000}?)\\\\\\])",
  "(?<math>\\\\\\(([\\s\\S]{1,2000}?)\\\\\\)|\\$(?=[^\\s$])([^$\\n]*?[^\\s\\\\$])\\$(?!\\d))",
  "(?<link>!?\\[([^\\]\\n]*)\\]\\(<?([^()\\s>]*(?:\\([^()\\s]*\\)[^()\\s>]*)*)>?(?:\\s+\"[^\"]*\")?\\))",
  "(?<bare>https?://[^\\s<>\"'`)\\]]*[^\\s<>\"'`)\\].,;:!?])",
  "(?<strong>\\*\\*(?=\\S)([\\s\\S]{0,2000}?\\S)\\*\\*|__(?=\\S)([\\s\\S]{0,2000}?\\S)__(?!\\w))",
  "(?<em>\\*(?=[^\\s*])([^*]*?[^\\s*])\\*|(?<!\\w)_(?=[^\\s_])([^_]*?[^\\s_])_(?!\\w))",
  "(?<del>~~(?=\\S)([\\s\\S]{0,2000}?\\S)~~)",
  "(?<escape>\\\\([!-/:-@[-`{-~]))",
  "(?<hard> {2,}\\n|\\\\\\n)",
].join("|"), "g");

function link(label, target) {
  let url = null;
  try { url = new URL(target); } catch { return element("span", {}, label); }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return element("span", {}, label);
  return element("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title: url.href }, label || target);
}

const LONGEST_SPANNED = 20000;  // characters; a longer paragraph is shown as it is

function inline(parent, text, depth = 0) {
  if (text.length > LONGEST_SPANNED) return parent.append(text);
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    const all = found[0];
    const groups = found.groups;
    // The parts of the one alternative that matched, without its whole.
    const part = found.slice(1).filter((value) => value !== undefined && value !== all).at(-1) ?? "";
    parent.append(text.slice(at, found.index));
    at = found.index + all.length;
    const nested = (name) => {
      const made = element(name);
      if (depth < 8) inline(made, part, depth + 1); else made.append(part);
      parent.append(made);
    };
    if (groups.code) parent.append(element("code", {}, found[3].replace(/^ (.*\S.*) $/s, "$1")));
    else if (groups.display) parent.append(mathElement(part, true));
    else if (groups.math) parent.append(mathElement(part, false));
    else if (groups.link) {
      const [, label, target] = /^!?\[([^\]]*)\]\(<?([^\s>]*?)>?(?:\s+"[^"]*")?\)$/.exec(all) ?? [];
      parent.append(link(label ?? all, target ?? ""));
    } else if (groups.bare) parent.append(link(all, all));
    else if (groups.strong) nested("strong");
    else if (groups.em) nested("em");
    else if (groups.del) nested("del");
    else if (groups.escape) parent.append(all[1]);
    else parent.append(element("br"));
  }
  parent.append(text.slice(at));
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const TABLE = /^ *\|?( *:?-+:? *\|)+ *(:?-+:? *)?$/;
const DISPLAY = /^ *(\$\$|\\\[)/;

// Divides a text into blocks, each a list of lines. A block ends where the next one begins, so that text that is
// appended changes the last blocks only.
export function blocks(text) {
  const lines = text.replaceAll("\r", "").split("\n");
  const found = [];
  for (let i = 0; i < lines.length;) {
    const begin = i;
    const fence = FENCE.exec(lines[i]);
    const display = DISPLAY.exec(lines[i]);
    if (!lines[i].trim()) { ++i; continue; }
    if (fence) {
      const end = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},} *$`);
      for (++i; i < lines.length && !end.test(lines[i]); ++i);
      found.push(lines.slice(begin, ++i).join("\n"));
      continue;
    }
    if (display) {
      const end = display[1] === "$$" ? "$$" : "\\]";
      const first = lines[i].slice(display[0].length);
      if (!first.includes(end)) for (++i; i < lines.length && !lines[i].includes(end); ++i);
      found.push(lines.slice(begin, ++i).join("\n"));
      continue;
    }
    if (/^ {0,3}#{1,6} /.test(lines[i]) || (RULE.test(lines[i]))) { found.push(lines[i++]); continue; }
    if (ITEM.test(lines[i])) {
      for (++i; i < lines.length; ++i) {
        if (lines[i].trim()) { if (!/^\s/.test(lines[i]) && !ITEM.test(lines[i]) && !lines[i - 1].trim()) break; continue; }
        const next = lines[i + 1] ?? "";
        if (next.trim() && !/^\s/.test(next) && !ITEM.test(next)) break;
      }
      found.push(lines.slice(begin, i).join("\n"));
      continue;
    }
    const quote = /^ {0,3}>/.test(lines[i]);
    for (++i; i < lines.length && lines[i].trim(); ++i)
      if (FENCE.test(lines[i]) || DISPLAY.test(lines[i]) || /^ {0,3}#{1,6} /.test(lines[i]) || ITEM.test(lines[i]) ||
          /^ {0,3}>/.test(lines[i]) !== quote) break;
    found.push(lines.slice(begin, i).join("\n"));
  }
  return found;
}

function codeBlock(text) {
  const lines = text.split("\n");
  const [, fence, language] = FENCE.exec(lines[0]);
  if (lines.length > 1 && lines.at(-1).trim().startsWith(fence)) lines.pop();
  const source = lines.slice(1).join("\n");
  const code = element("code");
  highlight(code, source, language.toLowerCase());
  const copy = element("button", { label: "Copy this code" }, "Copy");
  copy.onclick = async () => {
    await navigator.clipboard?.writeText(source);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1200);
  };
  return element("div", { class: "code" }, element("div", { class: "bar" }, element("span", {}, language || "text"), copy),
                 element("pre", { tabIndex: 0 }, code));
}

function list(text, depth) {
  const lines = text.split("\n");
  const [, indent, marker] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(marker);
  const made = element(ordered ? "ol" : "ul");
  if (ordered) made.start = parseInt(marker, 10);
  const items = [];
  let width = 0;
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length + 1) {
      width = item[0].length;
      items.push([line.slice(width)]);
    } else items.at(-1).push(line.slice(Math.min(width, line.length - line.trimStart().length)));
  }
  for (const item of items) {
    const one = element("li");
    const parts = blocks(item.join("\n"));
    for (const part of parts) {
      if (part === parts[0] && !ITEM.test(part) && !FENCE.test(part) && !DISPLAY.test(part)) inline(one, part);
      else one.append(block(part, depth + 1));
    }
    made.append(one);
  }
  return made;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
  const row = (line, name) => {
    const made = element("tr");
    for (const cell of cells(line)) {
      const one = element(name);
      inline(one, cell.replaceAll("\\|", "|"));
      made.append(one);
    }
    return made;
  };
  return element("div", { class: "scroll-x" }, element("table", {}, element("thead", {}, row(lines[0], "th")),
    element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

// Returns the element of one block.
export function block(text, depth = 0) {
  const lines = text.split("\n");
  const heading = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/.exec(text);
  const paragraph = element("p");
  if (depth > 8) { paragraph.append(text); return paragraph; }
  if (FENCE.test(lines[0])) return codeBlock(text);
  if (heading) {
    const made = element(`h${heading[1].length}`);
    inline(made, heading[2]);
    return made;
  }
  if (RULE.test(text)) return element("hr");
  if (ITEM.test(lines[0])) return list(text, depth);
  if (/^ {0,3}>/.test(lines[0])) {
    const inner = lines.map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n");
    return element("blockquote", {}, ...blocks(inner).map((part) => block(part, depth + 1)));
  }
  if (lines.length > 1 && lines[0].includes("|") && TABLE.test(lines[1])) return table(lines);
  inline(paragraph, text);
  return paragraph;
}

// Shows a text in an element. Blocks that are as before keep their elements, so that a stream costs its last block only.
export function show(parent, text) {
  const now = blocks(text);
  const before = parent.blocks ?? [];
  let same = 0;
  while (same < now.length && same < before.length && now[same] === before[same]) ++same;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  for (const part of now.slice(same)) parent.append(block(part));
  parent.blocks = now;
}

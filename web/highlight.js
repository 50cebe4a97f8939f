// Highlights code by its words: comments, strings, numbers, keywords and names of functions. One grammar serves the
// common languages; they differ in their comments and keywords only.
import { element } from "./dom.js";

const KEYWORDS = new Set(("and as assert async await auto bool break case catch char class const constexpr continue def del " +
  "default delete do double elif else enum except export extern false False finally float fn for from func function global " +
  "if impl import in int interface is lambda let long match mod mut namespace new None nonlocal not null nullptr or " +
  "override package pass private protected pub public raise return self short signed sizeof static struct super " +
  "switch template this throw trait true True try type typedef typename union unsigned use using var virtual void " +
  "where while with yield select create table insert into values update set join on group by order limit " +
  "then fi done esac echo end").split(" "));
const HASH_COMMENTS = /^(py|python|python3|sh|bash|shell|zsh|ruby|rb|yaml|yml|toml|r|julia|cmake|make|makefile|perl|ini)$/;

function grammar(language) {
  const comment = HASH_COMMENTS.test(language) ? "#[^\\n]*" : language === "sql" ? "--[^\\n]*"
    : "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)";
  return new RegExp(`(?<com>${comment})|(?<str>"""[\\s\\S]*?(?:"""|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|` +
    "`(?:\\\\.|[^`\\\\])*`?)|(?<num>\\b(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][-+]?\\d+)?)\\b)|" +
    "(?<word>[A-Za-z_$][\\w$]*)(?=(?<call>\\s*\\()?)", "g");
}

// Appends the code to a parent, in spans where it is highlighted.
export function highlight(parent, code, language) {
  if (!language || /^(text|txt|plain|output|console)$/.test(language)) return parent.append(code);
  let at = 0;
  for (const found of code.matchAll(grammar(language))) {
    const { com, str, num, word, call } = found.groups;
    const kind = com ? "com" : str ? "str" : num ? "num" : KEYWORDS.has(word) ||
      (language === "sql" && KEYWORDS.has(word.toLowerCase())) ? "kw" : call !== undefined ? "fn" : "";
    if (!kind) continue;
    parent.append(code.slice(at, found.index), element("span", { class: kind }, found[0]));
    at = found.index + found[0].length;
  }
  parent.append(code.slice(at));
}

// Converts LaTeX of mathematics to MathML, which browsers lay out themselves. A command that is unknown is shown by its
// name, so that no formula is lost.
const SPACE = "http://www.w3.org/1998/Math/MathML";

const GREEK = "alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ " +
  "mu:μ nu:ν xi:ξ pi:π rho:ρ sigma:σ tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ " +
  "Xi:Ξ Pi:Π Sigma:Σ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ ell:ℓ hbar:ℏ emptyset:∅ varnothing:∅ Re:ℜ Im:ℑ aleph:ℵ " +
  "ldots:… dots:… cdots:⋯ vdots:⋮ ddots:⋱ prime:′ angle:∠ triangle:△ degree:° top:⊤ bot:⊥";
const OPERATORS = "times:× cdot:⋅ div:÷ pm:± mp:∓ leq:≤ le:≤ geq:≥ ge:≥ neq:≠ ne:≠ approx:≈ equiv:≡ sim:∼ simeq:≃ cong:≅ " +
  "propto:∝ in:∈ notin:∉ ni:∋ subset:⊂ subseteq:⊆ supset:⊃ supseteq:⊇ cup:∪ cap:∩ setminus:∖ to:→ rightarrow:→ leftarrow:← " +
  "Rightarrow:⇒ Leftarrow:⇐ leftrightarrow:↔ Leftrightarrow:⇔ iff:⟺ implies:⟹ mapsto:↦ land:∧ wedge:∧ lor:∨ vee:∨ " +
  "neg:¬ lnot:¬ forall:∀ exists:∃ mid:∣ parallel:∥ perp:⟂ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ otimes:⊗ ll:≪ gg:≫ " +
  "sum:∑ prod:∏ int:∫ iint:∬ oint:∮ bigcup:⋃ bigcap:⋂ langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ lvert:| rvert:| " +
  "vert:| Vert:‖ lVert:‖ rVert:‖ lbrace:{ rbrace:} {:{ }:} %:% #:# &:& $:$ _:_ |:‖ therefore:∴ because:∵ colon::";
const table = (text) => new Map(text.split(" ").map((pair) => [pair.slice(0, pair.indexOf(":", 1)), pair.slice(pair.indexOf(":", 1) + 1)]));
const IDENTIFIERS = table(GREEK);
const SIGNS = table(OPERATORS);
const FUNCTIONS = new Set(("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker gcd deg " +
  "arg hom Pr lim max min sup inf limsup liminf mod bmod").split(" "));
const UNDER = new Set(["lim", "max", "min", "sup", "inf", "limsup", "liminf", "sum", "prod", "bigcup", "bigcap"]);
const SPACES = new Map([[",", ".17em"], [":", ".22em"], [";", ".28em"], ["!", "0"], [" ", ".28em"], ["quad", "1em"], ["qquad", "2em"]]);
const ACCENTS = new Map([["hat", "^"], ["widehat", "^"], ["bar", "¯"], ["overline", "¯"], ["vec", "→"], ["tilde", "~"],
  ["widetilde", "~"], ["dot", "˙"], ["ddot", "¨"], ["overrightarrow", "→"]]);
const FONTS = new Map([["mathbf", "bold"], ["boldsymbol", "bold"], ["mathrm", "normal"], ["operatorname", "normal"],
  ["mathbb", "double"], ["mathcal", "script"], ["mathit", ""], ["mathsf", "normal"]]);

function node(name, ...children) {
  const made = document.createElementNS(SPACE, name);
  made.append(...children);
  return made;
}
const row = (nodes) => nodes.length === 1 ? nodes[0] : node("mrow", ...nodes);

// Letters of a font as Unicode's mathematical characters.
function styled(text, font) {
  const odd = { double: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
                script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" } }[font] ?? {};
  const base = { bold: [0x1d400, 0x1d41a], double: [0x1d538, 0x1d552], script: [0x1d49c, 0x1d4b6] }[font];
  return [...text].map((c) => odd[c] ?? (!base ? c : /[A-Z]/.test(c) ? String.fromCodePoint(base[0] + c.charCodeAt(0) - 65)
    : /[a-z]/.test(c) ? String.fromCodePoint(base[1] + c.charCodeAt(0) - 97) : c)).join("");
}

class Parser {
  constructor(text) {
    this.tokens = text.match(/\\[A-Za-z]+\*?|\\[\s\S]|\d+(?:[.,]\d+)*|\s+|[\s\S]/gu) ?? [];
    this.at = 0;
    this.depth = 0;
  }
  peek() {
    while (/^\s+$/.test(this.tokens[this.at] ?? "")) ++this.at;
    return this.tokens[this.at];
  }
  next() { const token = this.peek(); ++this.at; return token; }

  // The raw text of a group in braces, or one token.
  raw(open = "{", close = "}") {
    if (this.peek() !== open) return open === "{" ? this.next() ?? "" : null;
    let text = "";
    let level = 0;
    for (; this.at < this.tokens.length; ++this.at) {
      const token = this.tokens[this.at];
      if (token === open && level++ === 0) continue;
      if (token === close && --level === 0) { ++this.at; break; }
      text += token;
    }
    return text;
  }
  // Everything up to a token that ends it; the token is consumed.
  until(ends) {
    const nodes = [];
    for (let token = this.peek(); token !== undefined; token = this.peek()) {
      if (ends(token)) { ++this.at; break; }
      const named = FUNCTIONS.has(token.slice(1));
      nodes.push(this.scripted());
      if (named && !/^[([)}^_,]|^\\(left|right)$/.test(this.peek() ?? ")")) nodes.push(this.gap(".17em"));
    }
    return nodes;
  }
  argument() {
    if (this.peek() === undefined) return node("mrow");
    if (this.peek() !== "{") return this.atom();
    ++this.at;
    return row(this.until((token) => token === "}"));
  }
  scripted() {
    const name = (this.peek() ?? "").slice(1);
    const base = this.atom();
    let below = null;
    let above = null;
    for (let token = this.peek(); token === "_" || token === "^" || token === "'"; token = this.peek()) {
      ++this.at;
      if (token === "_") below = this.argument();
      else if (token === "^") above = this.argument();
      else above = above ? node("mrow", above, node("mo", "′")) : node("mo", "′");
    }
    const [one, other, both] = UNDER.has(name) ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (below && above) return node(both, base, below, above);
    return below ? node(one, base, below) : above ? node(other, base, above) : base;
  }
  atom() {
    if (++this.depth > 200) { const rest = this.tokens.slice(this.at).join(""); this.at = this.tokens.length; return node("mtext", rest); }
    const made = this.symbol(this.next());
    --this.depth;
    return made;
  }
  symbol(token) {
    if (token === "{") return row(this.until((end) => end === "}"));
    if (token.startsWith("\\") && token.length > 1) return this.command(token.slice(1));
    if (/^\d/.test(token)) return node("mn", token);
    if (/^\p{L}$/u.test(token)) return node("mi", token);
    if (token === "~") return this.gap(".28em");
    const made = node("mo", token === "-" ? "−" : token === "*" ? "∗" : token);
    if (/^[()[\]|]$/.test(token)) made.setAttribute("stretchy", "false");  // only \left and \right stretch
    return made;
  }
  gap(width) { const made = node("mspace"); made.setAttribute("width", width); return made; }

  command(name) {
    if (IDENTIFIERS.has(name)) return node("mi", IDENTIFIERS.get(name));
    if (SIGNS.has(name)) return node("mo", SIGNS.get(name));
    if (SPACES.has(name)) return this.gap(SPACES.get(name));
    if (FUNCTIONS.has(name)) return node("mi", name);
    if (/^[dtc]?frac$/.test(name)) return node("mfrac", this.argument(), this.argument());
    if (/^[dt]?binom$/.test(name)) {
      const inner = node("mfrac", this.argument(), this.argument());
      inner.setAttribute("linethickness", "0");
      return node("mrow", node("mo", "("), inner, node("mo", ")"));
    }
    if (name === "sqrt") {
      const index = this.raw("[", "]");
      const inner = this.argument();
      return index === null ? node("msqrt", inner) : node("mroot", inner, row(new Parser(index).until(() => false)));
    }
    if (/^(text|textbf|textit|textrm|mbox|tag)$/.test(name)) return node("mtext", this.raw().replaceAll(" ", " "));
    if (FONTS.has(name)) return this.font(FONTS.get(name));
    if (ACCENTS.has(name)) {
      const made = node("mover", this.argument(), node("mo", ACCENTS.get(name)));
      made.setAttribute("accent", "true");
      return made;
    }
    if (name === "underline" || name === "phantom") return this.argument();
    if (name === "boxed") {
      const made = node("mrow", this.argument());
      made.setAttribute("class", "boxed");
      return made;
    }
    if (name === "left" || name === "right" || /^[bB]igg?[lrm]?$/.test(name)) return this.delimiter(name);
    if (name === "begin") return this.environment(this.raw());
    if (/^(displaystyle|textstyle|limits|nolimits|middle)$/.test(name) || name === "\\") return node("mrow");
    return node("mtext", `\\${name}`);
  }
  font(font) {
    const made = node("mi", styled(this.raw(), font));
    if (font === "normal") made.setAttribute("mathvariant", "normal");
    return made;
  }
  delimiter(name) {
    const sign = (token) => node("mo", token === undefined || token === "." ? "" : token.startsWith("\\")
      ? SIGNS.get(token.slice(1)) ?? token : token);
    const open = sign(this.next());
    if (name !== "left") return open;
    const inner = this.until((token) => token === "\\right");
    return node("mrow", open, ...inner, sign(this.next()));
  }
  environment(name) {
    if (/array|tabular/.test(name)) this.raw();
    const rows = [[[]]];
    for (let token = this.peek(); token !== undefined; token = this.peek()) {
      if (token === "\\end") { ++this.at; this.raw(); break; }
      if (token === "&") { ++this.at; rows.at(-1).push([]); } else if (token === "\\\\") { ++this.at; rows.push([[]]); }
      else rows.at(-1).at(-1).push(this.scripted());
    }
    if (rows.length > 1 && rows.at(-1).every((cell) => cell.length === 0)) rows.pop();
    const made = node("mtable", ...rows.map((cells) => node("mtr", ...cells.map((cell) => node("mtd", ...cell)))));
    if (/align|split|cases|gather/.test(name)) made.setAttribute("class", "aligned");
    const [open, close] = { pmatrix: ["(", ")"], bmatrix: ["[", "]"], vmatrix: ["|", "|"], Bmatrix: ["{", "}"],
                            cases: ["{", ""] }[name] ?? ["", ""];
    return open ? node("mrow", node("mo", open), made, node("mo", close)) : made;
  }
}

// Returns the element of a formula.
export function mathElement(text, display) {
  const parser = new Parser(text);
  const made = node("math", node("mrow", ...parser.until(() => false)));
  if (display) made.setAttribute("display", "block");
  return made;
}

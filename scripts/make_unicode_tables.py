"""Writes src/core/unicode_tables.cpp.

The tables are derived from the behaviour of the reference libraries and not from one Unicode version, because the
libraries follow several versions: `tokenizers` for categories, white space, word characters and normalisation, and
Python for printable characters and letter case, which Jinja's filters use.

    python scripts/make_unicode_tables.py        (needs the package tokenizers)
"""

import pathlib
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
FLAGS = {"kPatternSpace": 0x20, "kWhiteSpace": 0x40, "kWord": 0x80, "kNumeric": 0x100, "kPrintable": 0x200,
         "kPunctuation": 0x400, "kAccent": 0x800}
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNK = 4096


def matching(pattern):
    """Returns the code points that `pattern` matches in the regex engine of tokenizers."""
    replace = normalizers.Replace(Regex(pattern), "")
    found = set()
    for at in range(0, len(CODE_POINTS), CHUNK):
        chunk = CODE_POINTS[at : at + CHUNK]
        left = {ord(c) for c in replace.normalize_str("".join(map(chr, chunk)))}
        found.update(c for c in chunk if c not in left)
    return found


def isolated(pre_tokenizer):
    """Returns the code points that the pre-tokenizer splits off as separate pieces."""
    found = set()
    for at in range(0, len(CODE_POINTS), CHUNK):
        text = "a" + "a".join(map(chr, CODE_POINTS[at : at + CHUNK])) + "a"
        pieces = pre_tokenizer.pre_tokenize_str(text)
        found.update(ord(piece) for piece, _ in pieces if len(piece) == 1 and piece != "a")
    return found


def after_added_token(**flags):
    """Returns, by code point, the characters that an added token "Q" matches before it; 0 if it is not recognised."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("Q", normalized=False, **flags)])
    lengths = {}
    for at in range(0, len(CODE_POINTS), CHUNK):
        chunk = CODE_POINTS[at : at + CHUNK]
        for c, encoding in zip(chunk, tokenizer.encode_batch(["Q" + chr(c) for c in chunk])):
            lengths[c] = encoding.offsets[0][1] if encoding.ids else 0
    return lengths


def properties():
    value = [0] * 0x110000
    for index, name in enumerate(CATEGORIES):
        if name == "Cn":
            continue
        if name == "Cs":
            for c in range(0xD800, 0xE000):
                value[c] = index
            continue
        for c in matching(r"\p{%s}" % name):
            assert value[c] == 0
            value[c] = index
    flagged = {
        "kPatternSpace": matching(r"\s"),
        "kWhiteSpace": {c for c, n in after_added_token(rstrip=True).items() if n == 2 and c != ord("Q")},
        "kWord": {c for c, n in after_added_token(single_word=True).items() if n == 0} | {ord("Q")},
        "kNumeric": isolated(pre_tokenizers.Digits(individual_digits=True)),
        "kPrintable": {c for c in CODE_POINTS if chr(c).isprintable()},
        "kPunctuation": isolated(pre_tokenizers.Punctuation()),
        "kAccent": {c for c in CODE_POINTS if normalizers.StripAccents().normalize_str(chr(c)) == ""},
    }
    for name, found in flagged.items():
        for c in found:
            value[c] |= FLAGS[name]
    return value


def runs(values):
    return [(c, v) for c, v in enumerate(values) if c == 0 or v != values[c - 1]]


def combining_classes():
    nfd = normalizers.NFD()

    def reorders(a, b):
        return nfd.normalize_str(chr(a) + chr(b)) == chr(b) + chr(a)

    classes = [0] * 0x110000
    for c in CODE_POINTS:
        value = unicodedata.combining(chr(c))
        if value and (value == 1 or value == 240 or reorders(c, 0x334) or reorders(0x345, c)):
            classes[c] = value
        if not value:
            assert not reorders(c, 0x334) and not reorders(0x345, c), hex(c)
    return classes


def decompositions(form, beyond=None):
    """Returns the decompositions of the code points that `form` changes. Leaves out those that `beyond`, if given,
    changes in the same way."""
    table = {}
    for c in CODE_POINTS:
        if 0xAC00 <= c < 0xAC00 + 11172:
            continue
        result = form.normalize_str(chr(c))
        if result != chr(c) and (beyond is None or result != beyond.normalize_str(chr(c))):
            table[c] = [ord(x) for x in result]
    return table


def compositions():
    nfc = normalizers.NFC()
    pairs = []
    for c in CODE_POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) != 2 or parts[0].startswith("<"):
            continue
        first, second = (int(p, 16) for p in parts)
        if nfc.normalize_str(chr(first) + chr(second)) == chr(c):
            pairs.append((first, second, c))
    return sorted(pairs)


def literal(text):
    return '"' + "".join("\\x%02x" % b for b in text.encode()) + '"'


def rows(items, per_line=8):
    lines = []
    for at in range(0, len(items), per_line):
        lines.append("    " + ", ".join(items[at : at + per_line]) + ",")
    return "\n".join(lines)


def table(kind, name, items, per_line=8):
    return f"constexpr {kind} {name}Data[] = {{\n{rows(items, per_line)}\n}};\n"


def main():
    flat = []

    def indexed(decomposed):
        index = []
        for c, parts in decomposed.items():
            index.append("{0x%X, %d, %d}" % (c, len(flat), len(parts)))
            flat.extend("0x%X" % p for p in parts)
        return index

    canonical = indexed(decompositions(normalizers.NFD()))
    compatible = indexed(decompositions(normalizers.NFKD(), normalizers.NFD()))
    lowercase = normalizers.Lowercase()
    lower_of_tokens = [(c, lowercase.normalize_str(chr(c))) for c in CODE_POINTS if c >= 128]
    lower = [(c, chr(c).lower()) for c in CODE_POINTS if c >= 128 and chr(c).lower() != chr(c)]
    upper = [(c, chr(c).upper()) for c in CODE_POINTS if c >= 128 and chr(c).upper() != chr(c)]
    parts = [
        "// Generated by scripts/make_unicode_tables.py; do not edit.",
        '#include "core/unicode_tables.h"\n',
        "namespace hone {\nnamespace {\n",
        "// clang-format off",
        table("PropertyRun", "kProperty", ["{0x%X, 0x%X}" % run for run in runs(properties())]),
        table("CombiningRun", "kCombining", ["{0x%X, %d}" % run for run in runs(combining_classes())]),
        table("Decomposition", "kDecomposition", canonical),
        table("Decomposition", "kCompatibility", compatible),
        table("char32_t", "kDecomposed", flat, 12),
        table("Composition", "kComposition", ["{0x%X, 0x%X, 0x%X}" % pair for pair in compositions()], 5),
        table("CaseMapping", "kLower", ["{0x%X, %s}" % (c, literal(t)) for c, t in lower], 4),
        table("CaseMapping", "kTokenLower", ["{0x%X, %s}" % (c, literal(t)) for c, t in lower_of_tokens if t != chr(c).lower()], 4),
        table("CaseMapping", "kUpper", ["{0x%X, %s}" % (c, literal(t)) for c, t in upper], 4),
        "// clang-format on\n",
        "}  // namespace\n",
        "std::span<const PropertyRun> property_runs() { return kPropertyData; }",
        "std::span<const CombiningRun> combining_runs() { return kCombiningData; }",
        "std::span<const Decomposition> decompositions() { return kDecompositionData; }",
        "std::span<const Decomposition> compatibility_decompositions() { return kCompatibilityData; }",
        "std::span<const char32_t> decomposed_code_points() { return kDecomposedData; }",
        "std::span<const Composition> compositions() { return kCompositionData; }",
        "std::span<const CaseMapping> lower_case_mappings() { return kLowerData; }",
        "std::span<const CaseMapping> token_lower_case_mappings() { return kTokenLowerData; }",
        "std::span<const CaseMapping> upper_case_mappings() { return kUpperData; }\n",
        "}  // namespace hone\n",
    ]
    path = pathlib.Path(__file__).parent.parent / "src/core/unicode_tables.cpp"
    path.write_text("\n".join(parts))


main()

#!/usr/bin/env python3
"""Lists the functions of the sources that are longer than 60 lines, from the signature to the closing brace.
  scripts/check_functions.py [--most COUNT] [FOLDER]   default: src
Exits with 1 if there are more than COUNT (12)."""
import argparse
import os
import re
import sys

LINES = 60
# In this order: raw strings, comments, strings, characters (a ' between digits separates them), directives.
NO_CODE = re.compile(
    r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"^(template\s*<.*>\s*)?(typedef\s+)?(class|struct|union)\b[^()]*$", re.DOTALL)
INITIALISER = re.compile(r"\).*(?<!:)[:,]\s*[A-Za-z_]\w*(<[^()]*>)?$", re.DOTALL)  # `: member_` before a brace


def kind_of(head):
    """Returns what a brace after `head`, the text since the last statement, opens outside of functions."""
    if re.search(r"\bnamespace\b", head) or re.search(r'\bextern\s*""?$', head):
        return "namespace"
    if TYPE.match(head) or re.match(r"^(__|\[\[)?.*\b(class|struct|union)\s+(\w+|alignas\(\d+\)\s*\w+)$", head):
        return "type"
    initialised = re.search(r"(?<!operator)(?<![<>=!+*/%&|^-])=(?!=)", head.split("(")[0].split("operator")[0])
    in_parentheses = head.count("(") > head.count(")")
    if "(" not in head or in_parentheses or initialised or re.match(r"^enum\b", head) or INITIALISER.search(head):
        return "values"
    return "function"


def functions(text):
    """Yields (first line, lines, signature) of each function with a body."""
    code = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    stack = []  # (kind, start of the head)
    head = 0    # start of the current statement
    for at in (match.start() for match in re.finditer(r"[{};]|\b(?:public|private|protected)\s*:", code)):
        inside = stack[-1][0] if stack else "namespace"
        if code[at] == "{":
            outside = inside in ("namespace", "type")
            kind = kind_of(code[head:at].strip()) if outside else "block"
            stack.append((kind, head))
            if kind != "values":
                head = at + 1
        elif code[at] == "}":
            kind, start = stack.pop()
            if kind == "function":
                signature = code[start:].lstrip()
                first = code.count("\n", 0, len(code) - len(signature)) + 1
                yield first, code.count("\n", 0, at) + 2 - first, " ".join(signature.split("{")[0].split())
            if kind != "values":
                head = at + 1
        elif inside in ("namespace", "type"):
            head = at + 1 if code[at] == ";" else code.index(":", at) + 1
    assert not stack, "braces do not match"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="src")
    parser.add_argument("--most", type=int, default=12)
    options = parser.parse_args()
    if options.folder == "src":
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    found = []
    for folder, _, names in sorted(os.walk(options.folder)):
        for name in sorted(names):
            if not name.endswith((".h", ".cpp", ".cu", ".cuh")):
                continue
            path = os.path.join(folder, name)
            with open(path) as file:
                text = file.read()
            for line, length, signature in functions(text):
                if length > LINES:
                    found.append((length, f"{path}:{line}", signature))
    print(f"{len(found)} functions over {LINES} lines")
    for length, place, signature in sorted(found, reverse=True):
        print(f"  {length} {place} {signature[:90]}")
    if len(found) > options.most:
        print(f"at most {options.most} are allowed: split one into phases with names", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

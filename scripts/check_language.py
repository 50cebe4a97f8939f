#!/usr/bin/env python3
"""Lists prose that docs/contributing.md rules out: in comments and messages of sources, in scripts and in documents.
Lists links between documents whose file or heading does not exist, too.
  scripts/check_language.py [PATH...]   default: everything that is held to the rules
Prints "FILE:LINE: what is wrong: the line". Exits with 1 if there is a finding."""
import os
import re
import sys

PLACES = ["src", "include", "tests", "bench", "scripts", "docs", "README.md", "CHANGELOG.md"]

# A habit and what to write instead.
WORDS = [
    (r"name spaces?\b", "namespace"),
    (r"filters? of system calls", "seccomp filter"),
    (r"\bgiv\w+ up (its |their )?rights", "drops capabilities"),
    (r"\bproducts? of (two )?matrices|\bmatrix products?\b", "GEMM or matmul"),
    (r"\bmultiprocessors?\b", "SM"),
    (r"\b(is|are|was|were|be|been|being|not|never) told\b", "given, passed, shown"),
    (r"\brhythms?\b", "cadence"),
    (r"\bbeside\b", "next to, with, in addition to, compared with"),
    (r"\bwhoever\b|\bnobody\b(?!\")|\bno one\b", "the name of the component"),
    (r"\bwho (says|asks|knows|reads|wants|tells)\b", "the name of the component"),
    (r"\bof (its|their|one's) own\b", "its own, separate, dedicated"),
    (r"\ban own\b|\bthe own\b|\bown ones?\b", "its own, built-in"),
    (r"\b(lies|lie|lay) (in|on|at|below|above|within|there|where|before|behind|between|under|next)\b", "is in, is stored in"),
    (r"\bstands? (in|on|at|below|above|there|where|alone|before|behind|between|under)\b", "is in, is defined in"),
    (r"\b(is|are) asked\b", "is called, is requested"),
    (r"\banswers? for\b", "decides, handles"),
    (r"\bat once\b", "immediately, together, concurrently"),
    (r"\bg(o|oes|one|oing) on\b|\bwent on\b", "continues"),
    (r"(^|[.:;] )Else\b", "Otherwise"),
    (r"\banew\b", "again"),
    (r"\bthereof\b|\bwherein\b|\bwhereof\b|\bhereby\b", "plain words"),
    (r"\bspeaks?\b", "supports, uses"),
    (r"\bwants?\b", "requires, asks for, needs"),
    (r"\bmend(s|ed|ing)?\b", "fixes"),
    (r"\bmade of\b", "consists of"),
]
NO_SUBJECT = re.compile(r"^(What|Whether|Of|How|Which|Who|Whose|Whom|That|So|And|But|Nor|Else|Beside)\b")
FIGURE_FOR_FIGURE = re.compile(r"\d[\d,.]*\s?(%|ms|us|s|GiB|MiB|TFLOP/s|tokens/s|GB/s|TB/s) for (its |the )?\d")

# Texts of others, and of tests that quote them.
ALLOWED = [
    ("docs/contributing.md", ""),  # lists the words
    ("scripts/check_language.py", ""),
    ("src/jinja", ""),  # words of Jinja and Python
    ("src/data/arithmetic.cpp", ""),  # texts of the quickstart's corpus
    ("src/backend/cuda/gemm_search.cpp", "matrix products"),  # a seed's key
    ("src/sandbox/launcher.cpp", "from root to nobody"),  # a user
    ("tests/sandbox/launcher_test.cpp", "from root to nobody"),
    ("docs/rewards.md", "nobody"),
    ("src/ops/slices.h", "CudaDevice"),
    ("src/cli/profile/limits.h", "`anew`"),
    ("tests/support/golden.cpp", "anew"),
    ("tests/cli/bad_input_test.cpp", ""),  # labels in fixtures
    ("tests/cli/chat_test.cpp", "go on"),  # typed input
]


def cpp_prose(text):
    """Yields (line number, prose, begins a comment) for comments and for strings with more than one word."""
    in_comment = False
    for number, line in enumerate(text.split("\n"), 1):
        comment = re.match(r"^\s*//[/!<]? ?(.*)$", line)
        if comment:
            yield number, comment.group(1), not in_comment
            in_comment = True
            continue
        in_comment = False
        comment = re.search(r"\s//[/!<]* ?(.*)$", line)
        if comment and line[: comment.start()].count('"') % 2 == 0:
            yield number, comment.group(1), False
        if "#include" not in line:
            for string in re.findall(r'"((?:\\.|[^"\\])*)"', line):
                if " " in string:
                    yield number, string, False


def script_prose(text):
    in_comment = False
    for number, line in enumerate(text.split("\n"), 1):
        comment = re.match(r"^\s*# ?(.*)$", line)
        if comment and not line.startswith("#!"):
            yield number, comment.group(1), not in_comment
        in_comment = comment is not None


def document_prose(text):
    in_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "`x`", line), False


def anchors(path):
    """Returns the anchors that GitHub gives to the headings of a document."""
    with open(path) as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(path, line):
    """Yields the relative links of a document's line that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", line):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(target) or (anchor and target.endswith(".md") and anchor not in anchors(target)):
            yield link


def findings(path):
    with open(path, errors="replace") as file:
        text = file.read()
    if path.endswith(".md"):
        prose = document_prose(text)
    elif path.endswith((".h", ".cpp", ".cu", ".cuh")):
        prose = cpp_prose(text)
    else:
        prose = script_prose(text)
    for number, line, begins in prose:
        if path.endswith(".md"):
            for link in broken_links(path, line):
                yield number, f'the link "{link}" leads nowhere', line
        if any(path.startswith(place) and word in line for place, word in ALLOWED):
            continue
        for habit, instead in WORDS:
            match = re.search(habit, line)
            if match:
                yield number, f'"{match.group(0)}", write {instead}', line
        if FIGURE_FOR_FIGURE.search(line):
            yield number, "one figure for another, write up from or down from", line
        if begins and NO_SUBJECT.match(line):
            yield number, "a comment without its subject", line


def files_of(place):
    if os.path.isfile(place):
        return [place]
    result = []
    for folder, _, names in sorted(os.walk(place)):
        if "fixtures" in folder:
            continue
        for name in sorted(names):
            known = name.endswith((".h", ".cpp", ".cu", ".cuh", ".md", ".sh", ".py", ".cmake")) or name == "CMakeLists.txt"
            if known and name != "unicode_tables.cpp":
                result.append(os.path.join(folder, name))
    return result


def main():
    places = sys.argv[1:]
    if not places:
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    count = 0
    for place in places or PLACES:
        for path in files_of(place):
            for number, what, line in findings(path):
                print(f"{path}:{number}: {what}: {line.strip()[:100]}")
                count += 1
    if count:
        print(f"{count} findings (docs/contributing.md, Language)", file=sys.stderr)
    sys.exit(count > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Lists habits of prose that docs/contributing.md rules out, in comments and messages of sources and in documents.
  scripts/check_language.py [PATH...]   default: src include tests bench scripts docs README.md CHANGELOG.md
Exits with 1 if there is a finding."""
import re, sys, os
WORDS = [
 (r'name spaces?\b', 'namespace'), (r'filters? of system calls', 'seccomp filter'), (r'\bgiv\w+ up (its |their )?rights', 'drops capabilities'),
 (r'\bproducts? of (two )?matrices', 'matmul / GEMM'), (r'\bmatrix products?\b', 'matmul / GEMM'), (r'\bmultiprocessors?\b', 'SM'),
 (r'\b(is|are|was|were|be|been|being|not|never) told\b|\btold\b', 'given / passed / notified / shown'), (r'\bsoften\w*', 'say what is done'),
 (r'\brhythms?\b', 'cadence'), (r'\bbeside\b', 'next to / with / compared with / in addition to'), (r'\bwhoever\b', 'the caller / the user / ...'),
 (r'\bnobody\b', 'untrusted / no process / no caller'), (r'\bno one\b', 'no caller / no process'),
 (r"\bof (its|their|one's|his) own\b", 'its own X / separate / dedicated'), (r'\ban own\b|\bthe own\b|\bown ones?\b', 'its own / built-in'),
 (r'\b(lies|lie|lay) (in|on|at|below|above|beyond|within|there|where|outside|before|behind|between|under|next)\b', 'is in / is stored in'),
 (r'\bstands? (in|on|at|below|above|there|where|for itself|alone|still|twice|before|behind|between|under)\b', 'is / is in / is defined in'),
 (r'\bwho (says|asks|knows|is|has|reads|wants|tells)\b', 'name the component'), (r'\b(is|are) asked\b', 'is called / is requested'),
 (r'\banswers? for\b', 'decides / handles'), (r'\bat once\b', 'immediately / together / concurrently'),
 (r'\bg(o|oes|one|oing|went) on\b|\bwent on\b', 'continue(s)'), (r'(^|[.:;] )Else\b', 'Otherwise'), (r'\banew\b', 'again'), (r'\bupon\b', 'on'),
 (r'\bthereof\b|\bwherein\b|\bhereby\b|\bthereby\b|\bwhereof\b', 'plain words'), (r'\bit is so\b|\bare so\b', 'say it'),
 (r'\bspeaks?\b', 'supports / uses'), (r'\bhears?\b', 'receives'), (r'\bwants?\b', 'needs / requires / asks for'),
 (r'\bmends?\b|\bmended\b', 'fix'), (r'\bsums? of money\b', ''), (r'\bmade of\b', 'consists of'),
]
FIRST = re.compile(r'^(What|Whether|Of|Where|How|Which|Who|Whose|Whom|That|So|And|But|Also|Nor|Else|Is|When|From|For|To|As|In|Without|With|By|Again|Not|No longer|Beside)\b')
OKFIRST = re.compile(r'^(For example|In-place|In place|As of|With [^.]*,|For [^.]*,|In [^.]*,|As [^.]*,|When [^.]*,|To [^.]*,|From [^.]*,|By [^.]*,|Without [^.]*,|Where [^.]*,|Not [a-z]+:)')
ABFOR = re.compile(r'\d[\d,.]*\s?(%|[A-Za-z/]+)? for (its |the )?\d')
def comments_cpp(text):
    lines = text.split('\n'); prev = False
    for i, l in enumerate(lines, 1):
        m = re.match(r'^\s*//[/!<]? ?(.*)$', l)
        if m:
            yield i, m.group(1), not prev, True
            prev = True; continue
        prev = False
        m = re.search(r'\s//[/!<]* ?(.*)$', l)
        if m and l[:m.start()].count('"') % 2 == 0: yield i, m.group(1), False, True
        if '#include' in l: continue
        for s in re.findall(r'"((?:\\.|[^"\\])*)"', l):
            if ' ' in s: yield i, s, False, False
def comments_sh(text):
    prev = False
    for i, l in enumerate(text.split('\n'), 1):
        m = re.match(r'^\s*# ?(.*)$', l)
        if m and not l.startswith('#!'): yield i, m.group(1), not prev, True; prev = True
        else: prev = False
def md(text):
    code = False
    for i, l in enumerate(text.split('\n'), 1):
        if l.startswith('```'): code = not code; continue
        if code or l.startswith('    '): continue
        yield i, re.sub(r'`[^`]*`', '`x`', l), False, True
n = 0
def check(path):
    global n
    t = open(path, errors='replace').read()
    it = md(t) if path.endswith('.md') else comments_sh(t) if path.endswith(('.sh', '.py', '.cmake', 'CMakeLists.txt', '.yaml')) else comments_cpp(t)
    for i, s, first, iscomment in it:
        for w, use in WORDS:
            m = re.search(w, s)
            if m: print(f'{path}:{i}: "{m.group(0)}" -> {use}: {s.strip()[:110]}'); n += 1
        if ABFOR.search(s): print(f'{path}:{i}: "A for B": {s.strip()[:110]}'); n += 1
        if first and FIRST.match(s) and not OKFIRST.match(s): print(f'{path}:{i}: begins without a subject: {s.strip()[:110]}'); n += 1
for p in sys.argv[1:]:
    if os.path.isdir(p):
        for d, _, fs in sorted(os.walk(p)):
            for f in sorted(fs):
                if f.endswith(('.h', '.cpp', '.cu', '.cuh', '.md', '.sh', '.py', '.cmake')) or f == 'CMakeLists.txt':
                    if f != 'unicode_tables.cpp' and 'fixtures' not in d: check(os.path.join(d, f))
    else: check(p)
print(n, 'findings', file=sys.stderr)
sys.exit(n > 0)

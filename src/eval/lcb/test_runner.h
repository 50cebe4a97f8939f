// Python program that runs a solution on its tests in the sandbox.
#pragma once

#include <string_view>

namespace hone {

// The runner reads {"inputs": [...], "function": TEXT or null} from standard input and the solution from solution.py.
// It writes one line of JSON when the solution is loaded and one per test: {"out": TEXT}, {"value": ...} (in the form
// that same_value() reads), or {"error": TEXT}, after which it exits. The caller must kill it when a line is late
// (SandboxLimits::silence), because a solution could ignore an alarm.
//
// It runs solutions like the runner of LiveCodeBench, so that scores are comparable. The usual modules are imported. A
// program becomes the body of a function, including the body of `if __name__ == '__main__'`; the function is called for
// each test with the input in sys.stdin and open(). If the problem names a function, it is called with the arguments.
inline constexpr std::string_view kTestRunner = R"python(
import ast, json, os, sys
from io import StringIO
from types import ModuleType
from unittest.mock import mock_open, patch

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(50000)

STAR = ("string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys "
        "json builtins typing").split()
PLAIN = ("string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys "
         "json").split()
IMPORTS = ("".join(f"from {name} import *\n" for name in STAR) + "".join(f"import {name}\n" for name in PLAIN)
           + "sys.setrecursionlimit(50000)\n")


def opened_main(code):
    try:
        tree = ast.parse(code)
        last = tree.body[-1]
        if isinstance(last, ast.If) and ast.unparse(last.test).strip() == "__name__ == '__main__'":
            return ast.unparse(tree.body[:-1]) + "\n" + ast.unparse(last.body)
    except Exception:
        pass
    return code


def as_function(code):
    try:
        tree = ast.parse(code)
        imports = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
        others = [s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))]
        function = ast.FunctionDef(name="wrapped_function", body=others, decorator_list=[], lineno=-1,
                                   args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[],
                                                      defaults=[]))
        return IMPORTS + "\n" + ast.unparse(imports) + "\n" + ast.unparse(function)
    except Exception:
        return code


def load(code):
    module = ModuleType("tmp_sol", "")
    exec(code, module.__dict__)
    return module.Solution() if "class Solution" in code else module


def call_program(method, text):
    lines = iter(text.split("\n"))

    @patch("builtins.open", mock_open(read_data=text))
    @patch("sys.stdin", StringIO(text))
    @patch("sys.stdin.readline", lambda *args: next(lines))
    @patch("sys.stdin.readlines", lambda *args: text.split("\n"))
    @patch("sys.stdin.read", lambda *args: text)
    def inner(method):
        try:
            return method()
        except SystemExit:
            pass

    return inner(method)


def told(value):
    if value is None:
        return "n"
    if isinstance(value, int):
        return f"i:{int(value)}"
    if isinstance(value, float):
        return f"i:{int(value)}" if value.is_integer() else f"f:{float(value)!r}"
    if isinstance(value, str):
        return "s:" + value
    if isinstance(value, list):
        return [told(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: told(item) for key, item in value.items()}
    return False


def main():
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    task = json.load(sys.stdin)
    with open("solution.py") as file:
        code = file.read()
    name = task["function"]

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        if name is None:
            method = load(as_function(opened_main(code))).wrapped_function
        else:
            method = getattr(load(IMPORTS + "\n\n" + code), name)
    except BaseException as error:
        return say({"error": "load: " + type(error).__name__})
    say({"loaded": True})
    for text in task["inputs"]:
        arguments = [] if name is None else [json.loads(line) for line in text.split("\n")]
        kept, sys.stdout = sys.stdout, StringIO()
        sys.stdout.close = lambda: 1
        captured = sys.stdout
        try:
            value = call_program(method, text) if name is None else method(*arguments)
            if isinstance(value, tuple):
                value = list(value)
            answer = {"out": captured.getvalue()} if name is None else {"value": told(value)}
        except BaseException as error:
            answer = {"error": type(error).__name__}
        finally:
            sys.stdout = kept
        say(answer)
        if "error" in answer:
            return


main()
)python";

}  // namespace hone

// Python script that serves one reward function. Its standard input is a socket that carries requests and answers as
// lines of JSON. The first request names the function; the answer is {"ready": NAME}. Each further request is a batch;
// the answer is {"scores": [...]}. After a failure the answer is {"error": TEXT}, with a traceback on standard error.
#include "reward/user/python_reward.h"

namespace hone {

const char* const kPythonHost = R"python(
import asyncio, copy, faulthandler, importlib, importlib.util, inspect, json, math, os, signal, sys, traceback, types


class Refusal(Exception):
    """Error of the reward's author that is clear without a traceback."""


def parameters_of(function):
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]


def is_reward(module, name, value):
    return (
        inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
        and any(parameter.name == "completions" for parameter in parameters_of(value))
    )


def load_module(target):
    # Bytecode is found by a file's size and time in seconds, so Python could run the version before a quick edit.
    sys.dont_write_bytecode = True
    if "module" in target:
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(target["module"])
    path = target["file"]
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load(target):
    module = load_module(target)
    rewards = [name for name, value in vars(module).items() if is_reward(module, name, value)]
    name = target.get("function")
    if name is None:
        if len(rewards) != 1:
            found = "functions " + ", ".join(rewards) if rewards else "no function with the parameter completions"
            raise Refusal(f"the file has {found}: name one as FILE.py:FUNCTION")
        name = rewards[0]
    function = getattr(module, name, None)
    if function is None:
        raise Refusal(f"it has no function {name}" + (f", but {', '.join(rewards)}" if rewards else ""))
    if not callable(function):
        raise Refusal(f"{name} is not a function but {type(function).__name__}")
    return name, function


def spread(values, row_of):
    """Returns one value per completion. Copies keep completions of one prompt from sharing mutable values."""
    return [copy.deepcopy(values[row]) for row in row_of]


def call(function, request, loop):
    rows, row_of = request["rows"], request["row_of"]
    taken = ("prompt", "completion", "prompts", "completions", "completion_ids", "trainer_state")
    names = dict.fromkeys(name for row in rows for name in row if name not in taken)
    columns = {name: spread([row.get(name) for row in rows], row_of) for name in names}
    given = dict(columns, prompts=spread(request["prompts"], row_of), completions=request["completions"])
    if request["completion_ids"] is not None:
        given["completion_ids"] = request["completion_ids"]
    given["trainer_state"] = types.SimpleNamespace(**request["trainer_state"])
    parameters = parameters_of(function)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in given]
    if missing:
        have = ", ".join(sorted(columns)) or "none"
        raise Refusal(f"its parameter {missing[0]} is not a column of the data (columns: {have})")
    if not any(p.kind == p.VAR_KEYWORD for p in parameters):
        names = {p.name for p in named}
        given = {name: value for name, value in given.items() if name in names}
    result = function(**given)
    return loop.run_until_complete(result) if inspect.isawaitable(result) else result


def scores_of(result, count):
    if hasattr(result, "tolist"):
        result = result.tolist()
    if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__iter__"):
        raise Refusal(f"it returns {type(result).__name__}: return a list of {count} numbers or None")
    scores = list(result)
    if len(scores) != count:
        raise Refusal(f"it returns {len(scores)} rewards for {count} completions")
    for i, score in enumerate(scores):
        if score is None:
            continue
        try:
            value = math.nan if isinstance(score, (str, bytes)) else float(score)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise Refusal(f"completion {i + 1} gets {score!r:.60}: return a finite number or None")
        scores[i] = value
    return scores


def print_trace(error):
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in ("<string>", "<frozen importlib._bootstrap>",
                                                                      "<frozen importlib._bootstrap_external>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def guarded(work):
    try:
        return work()
    except Refusal as error:
        return {"error": str(error)}
    except BaseException as error:
        print_trace(error)
        return {"error": "it raised " + traceback.format_exception_only(type(error), error)[-1].strip()}


def main():
    channel = os.dup(0)  # keep the socket; the reward gets an empty standard input and prints to standard error
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False, chain=True)  # prints where it is, and ends
    requests = os.fdopen(channel, "rb", closefd=False)
    sys.argv = ["reward"]
    sys.path[:] = [entry for entry in sys.path if entry]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    function = None

    def serve(line):
        nonlocal function
        request = json.loads(line)
        if function is None:
            name, function = load(request)
            return {"ready": name}
        return {"scores": scores_of(call(function, request, loop), len(request["completions"]))}

    for line in requests:
        answer = guarded(lambda: serve(line))
        sys.stdout.flush()
        sys.stderr.flush()
        left = memoryview(json.dumps(answer).encode() + b"\n")
        while left:
            left = left[os.write(channel, left):]


main()
)python";

}  // namespace hone

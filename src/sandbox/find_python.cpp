#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "sandbox/runner.h"
#include "sandbox/world.h"
#include "system/child.h"

namespace hone {

SandboxProgram find_python(const Sandbox& sandbox) {
  const Sandbox outside(SandboxMode::kNone);
  SandboxLimits limits;
  limits.wall_time = std::chrono::seconds(20);  // the first start of an interpreter reads many files from disk
  for (const std::string& candidate : executables_named("python3")) {
    const SandboxProgram asked{
        .arguments = {candidate, "-c", "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sep='\\n')"}};
    const SandboxResult told = outside.run(asked, {}, limits);
    const std::vector<std::string> lines = split(told.output, '\n');
    if (!told.succeeded() || lines.size() < 3) continue;
    SandboxProgram python{.arguments = {lines[0], "-B", "-s"}};
    for (const std::string& prefix : {lines[1], lines[2]}) {
      for (const std::string& part : readable_parts(prefix)) {
        const bool seen = std::ranges::find(python.readable, part) != python.readable.end();
        if (!seen) python.readable.push_back(part);
      }
    }
    sandbox.check_readable(python.readable);
    SandboxProgram test = python;
    test.arguments.insert(test.arguments.end(), {"-c", "print('works')"});
    const SandboxResult result = sandbox.run(test, {}, limits);
    if (result.succeeded() && result.output == "works\n") return python;
  }
  throw Error("the sandbox for programs", "no python3 in PATH runs in it",
              "install the package python3, whose files every user may read");
}

}  // namespace hone

// Measures the cost of starting a program in the sandbox.
//   sandbox_speed [namespaces|bubblewrap [PROGRAMS [WORKERS]]]
// Runs shell programs that print one line and reports wall-clock time and CPU time. The CPU time covers this process
// and all its children, and hardly depends on other work on the machine.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "sandbox/runner.h"

namespace hone {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

struct Used {
  double user = 0;
  double system = 0;
};

Used used() {
  Used all;
  for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(whose, &usage);
    all.user += seconds(usage.ru_utime);
    all.system += seconds(usage.ru_stime);
  }
  return all;
}

int run(SandboxMode mode, std::size_t count, int workers) {
  std::optional<Sandbox> sandbox(mode);  // its destructor waits for its server, whose CPU time then counts
  const SandboxProgram program{
      .arguments = {"/bin/sh", "-c", "echo $((6 * 7))"}, .files = {}, .readable = {}, .pipes = {}};
  const std::vector<SandboxTask> tasks(count, SandboxTask{&program, {}, {}});
  const Used before = used();
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<SandboxResult> results = sandbox->run(tasks, workers);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  sandbox.reset();
  const Used after = used();
  for (const SandboxResult& result : results) {
    if (result.succeeded() && result.output == "42\n") continue;
    std::fprintf(stderr, "a program failed: %s %s\n", result.failure.c_str(), result.error.c_str());
    return 1;
  }
  const auto programs = static_cast<double>(count);
  const double user = (after.user - before.user) / programs;
  const double system = (after.system - before.system) / programs;
  std::printf(
      "%.0f programs per second of wall-clock time; %.2f ms of CPU time each (%.2f ms in the kernel): %.0f per second "
      "on two cores\n",
      programs / elapsed, (user + system) * 1e3, system * 1e3, 2 / (user + system));
  return 0;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "namespaces";
  const std::size_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000;
  const int workers = argc > 3 ? std::atoi(argv[3]) : 2;
  try {
    return hone::run(mode == "bubblewrap" ? hone::SandboxMode::kBubblewrap : hone::SandboxMode::kNamespaces, count,
                     workers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// Host process for a reward in a shared object: reads one JSON object per line and prints one score per line.
#include "reward/user/host.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace hone {
namespace {

using SharedObjectJudge = int (*)(const char* json, std::size_t size, double* score);

constexpr int kScored = 0;     // HONE_REWARD_SCORED
constexpr int kNoOpinion = 1;  // HONE_REWARD_NO_OPINION

// Returns a stream to the original standard output and redirects standard output to standard error, so that text
// printed by the shared object is not read as an answer.
std::FILE* take_standard_output() {
  const int answers = dup(STDOUT_FILENO);
  if (answers < 0) return nullptr;
  (void)dup2(STDERR_FILENO, STDOUT_FILENO);
  return fdopen(answers, "w");
}

int serve(const char* path) {
  void* object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) return (void)std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto judge = reinterpret_cast<SharedObjectJudge>(dlsym(object, "hone_reward"));
  if (judge == nullptr) return (void)std::fprintf(stderr, "it defines no function hone_reward\n"), 1;
  std::FILE* answers = take_standard_output();
  if (answers == nullptr) return 1;
  char* line = nullptr;
  std::size_t room = 0;
  for (ssize_t size = getline(&line, &room, stdin); size > 0; size = getline(&line, &room, stdin)) {
    if (line[size - 1] == '\n') line[--size] = '\0';
    double score = 0;
    const int answer = judge(line, static_cast<std::size_t>(size), &score);
    if (answer != kScored && answer != kNoOpinion) {
      std::fprintf(stderr, "hone_reward returned %d\n", answer);
      return 1;
    }
    if (answer == kScored) std::fprintf(answers, "%.17g\n", score);
    if (answer == kNoOpinion) std::fputs("null\n", answers);
  }
  std::free(line);
  return std::fclose(answers) == 0 ? 0 : 1;
}

// Runs before main() if the environment names a shared object, and exits.
[[gnu::constructor]] void host_where_asked() {
  const char* path = std::getenv(kHostVariable);
  if (path == nullptr) return;
  const std::string kept = path;
  unsetenv(kHostVariable);
  const int status = serve(kept.c_str());
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

const char* host_variable() { return kHostVariable; }

}  // namespace hone

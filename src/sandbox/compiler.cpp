#include "sandbox/compiler.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

constexpr std::size_t kMostKept = 64;
constexpr std::size_t kMostBytesKept = std::size_t{64} << 20;

// The linker seeks in its output, which therefore cannot be a pipe.
constexpr std::string_view kScript = R"("$@" >&2 && exec cat program.out)";

SandboxLimits compiler_limits() {
  SandboxLimits limits;
  limits.wall_time = std::chrono::seconds(60);
  limits.cpu_seconds = 60;
  limits.memory_bytes = 2ULL << 30;
  limits.processes = 16;
  limits.file_bytes = 64ULL << 20;
  limits.disk_bytes = 256ULL << 20;
  limits.output_bytes = kMostBinaryBytes;
  return limits;
}

// Returns a cache key. Every part is preceded by its length, so that different programs have different keys.
std::string key_of(const CppProgram& program) {
  std::string key;
  const auto add = [&key](std::string_view text) { key += text_of(text.size(), ':', text); };
  for (const std::string& flag : program.flags) add(flag);
  add("/");
  for (const std::string& source : program.sources) add(source);
  for (const SandboxFile& file : program.files) {
    add(file.name);
    add(file.content);
  }
  return key;
}

}  // namespace

CppCompiler::CppCompiler(const Sandbox& sandbox, std::string path) : sandbox_(sandbox), path_(std::move(path)) {
  if (access(path_.c_str(), X_OK) != 0) {
    throw Error("rewards for C++ programs", text_of("there is no compiler ", path_),
                "install the package g++, or leave ioi_code and cf_code out of reward_funcs");
  }
}

std::shared_ptr<const CompiledProgram> CppCompiler::compile(const CppProgram& program) {
  std::string key = key_of(program);
  if (std::shared_ptr<const CompiledProgram> found = find(key)) return found;
  auto made = std::make_shared<const CompiledProgram>(run(program));
  if (made->failure.empty()) keep(std::move(key), made);
  return made;
}

std::shared_ptr<const CompiledProgram> CppCompiler::find(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto place = std::ranges::find(kept_, key, &Kept::key);
  if (place == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, place);
  return place->program;
}

void CppCompiler::keep(std::string key, std::shared_ptr<const CompiledProgram> program) {
  const std::scoped_lock lock(mutex_);
  kept_.push_front({std::move(key), std::move(program)});
  bytes_kept_ += kept_.front().bytes();
  while (kept_.size() > kMostKept || bytes_kept_ > kMostBytesKept) {
    bytes_kept_ -= kept_.back().bytes();
    kept_.pop_back();
  }
}

CompiledProgram CppCompiler::run(const CppProgram& program) const {
  SandboxProgram compiler{.arguments = {"/bin/sh", "-c", std::string(kScript), "sh", path_, "-o", "program.out"},
                          .files = program.files,
                          .readable = {},
                          .pipes = {}};
  compiler.arguments.insert(compiler.arguments.end(), program.flags.begin(), program.flags.end());
  compiler.arguments.insert(compiler.arguments.end(), program.sources.begin(), program.sources.end());
  SandboxResult result = sandbox_.run(compiler, {}, compiler_limits());
  CompiledProgram made;
  made.messages = std::move(result.error);
  made.failure = std::move(result.failure);
  if (result.exit_status == 0 && !result.timed_out && !result.output_exceeded) made.binary = std::move(result.output);
  return made;
}

}  // namespace hone

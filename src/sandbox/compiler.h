// C++ programs, compiled in the sandbox, once each.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sandbox/runner.h"

namespace hone {

struct CppProgram {
  std::vector<std::string> flags;    // before the sources: "-std=c++17", "-O2"
  std::vector<SandboxFile> files;    // sources and headers
  std::vector<std::string> sources;  // names of those files that are compiled
};

// A larger binary counts as one that did not compile.
inline constexpr std::size_t kMostBinaryBytes = std::size_t{16} << 20;

struct CompiledProgram {
  std::string binary;    // empty where it did not compile
  std::string messages;  // the compiler's, on standard error, at most the first 64 KiB
  std::string failure;   // why the compiler could not be run at all; else empty
};

// Keeps what it compiled last, so that a checker is compiled once a run. Any thread may call.
class CppCompiler {
 public:
  // Throws Error where the machine has no compiler of this path. The sandbox must outlive this.
  explicit CppCompiler(const Sandbox& sandbox, std::string path = "/usr/bin/g++");

  [[nodiscard]] std::shared_ptr<const CompiledProgram> compile(const CppProgram& program);

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const CompiledProgram> program;
    [[nodiscard]] std::size_t bytes() const { return key.size() + program->binary.size() + program->messages.size(); }
  };

  [[nodiscard]] std::shared_ptr<const CompiledProgram> find(const std::string& key);
  void keep(std::string key, std::shared_ptr<const CompiledProgram> program);
  [[nodiscard]] CompiledProgram run(const CppProgram& program) const;

  const Sandbox& sandbox_;
  std::string path_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the latest first
  std::size_t bytes_kept_ = 0;
};

}  // namespace hone

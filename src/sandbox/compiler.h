// Compiles C++ programs in the sandbox and caches the binaries.
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
  std::vector<std::string> flags;    // placed before the sources: "-std=c++17", "-O2"
  std::vector<SandboxFile> files;    // sources and headers
  std::vector<std::string> sources;  // names of the files that are compiled
};

// Maximum size of a binary. A program whose binary is larger counts as one that does not compile.
inline constexpr std::size_t kMostBinaryBytes = std::size_t{16} << 20;

struct CompiledProgram {
  std::string binary;    // empty if the program does not compile
  std::string messages;  // standard error of the compiler, at most the first 64 KiB
  std::string failure;   // why the compiler could not be run; empty if it ran
};

// Runs g++ and caches the most recently used binaries (at most 64 programs and 64 MiB), so that a checker is compiled
// once per training run. Thread-safe.
class CppCompiler {
 public:
  // Throws Error if `path` is not an executable. The sandbox must outlive this object.
  explicit CppCompiler(const Sandbox& sandbox, std::string path = "/usr/bin/g++");

  // Returns the compiled program, never null. A program that could not be run at all (`failure`) is not cached.
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
  std::list<Kept> kept_;  // the most recently used first
  std::size_t bytes_kept_ = 0;
};

}  // namespace hone

// Checks that no static destructor releases resources of a vendor's library such as CUDA. The library's exit handlers
// run before the destructors of static objects that were constructed before the library was opened.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/files.h"
#include "core/regex.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

// Returns true if the file can have handles of CUDA or of a library that it opens itself.
bool sees_a_vendor(const fs::path& file, const std::string& text) {
  return file.extension() == ".cu" || file.extension() == ".cuh" || text.find("cuda_runtime") != std::string::npos ||
         text.find("backend/cuda/") != std::string::npos || text.find("dlfcn.h") != std::string::npos;
}

bool is_found(const Regex& expression, const std::string& line) {
  bool found = false;
  expression.for_each_match(line, [&](const RegexMatch&) { found = true; });
  return found;
}

TEST(Statics, OfVendorLibrariesAreImmortal) {
  // A definition of a static object: a type, a name and an optional initializer. Function definitions, which end in {,
  // are excluded.
  const Regex definition(
      R"(^\s*static (?!const|Immortal<|std::atomic<|bool |int )[\w:<>, *]+[ &]\w+(\(.*\)|\{.*\}| = .*)?;)");
  EXPECT_TRUE(is_found(definition, "  static CudaDevice device(0);"));
  EXPECT_FALSE(is_found(definition, "  static Immortal<CudaDevice> device(0);"));
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source_dir() / "src")) {
    if (!entry.is_regular_file()) continue;
    const std::string text = read_file(entry.path());
    if (!sees_a_vendor(entry.path(), text)) continue;
    ++files;
    for (const std::string& line : split(text, '\n')) {
      if (line.find('(') != std::string::npos && line.find(") {") != std::string::npos) continue;
      EXPECT_FALSE(is_found(definition, line)) << entry.path() << ": " << line;
    }
  }
  EXPECT_GT(files, 40);
}

}  // namespace
}  // namespace hone::test

#include "support/paths.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace hone::test {
namespace fs = std::filesystem;

fs::path source_dir() { return HONE_SOURCE_DIR; }
fs::path binary_dir() { return HONE_BINARY_DIR; }
fs::path fixture(std::string_view relative) { return source_dir() / "tests" / "fixtures" / relative; }

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (fs::temp_directory_path() / "hone-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace hone::test

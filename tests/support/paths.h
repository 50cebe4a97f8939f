// Where a test finds its fixtures and may write.
#pragma once

#include <filesystem>
#include <string_view>

namespace hone::test {

[[nodiscard]] std::filesystem::path source_dir();                        // the checkout
[[nodiscard]] std::filesystem::path binary_dir();                        // the build folder
[[nodiscard]] std::filesystem::path fixture(std::string_view relative);  // tests/fixtures/RELATIVE
// A new empty folder, removed with its content when the object dies.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace hone::test

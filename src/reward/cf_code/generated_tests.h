// The tests of Codeforces problems that open-r1 generated: its CF_TESTS_FOLDER, a Parquet file a contest.
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "reward/judging/stored_tests.h"
#include "reward/reward.h"

namespace hone {

class GeneratedTests {
 public:
  // `folder`: empty for that of the environment's CF_TESTS_FOLDER, if it is set. Throws Error where a folder is named
  // that is not there or holds no tests.
  GeneratedTests(const std::string& folder, RowSource rows);

  // Those of the row's problem, which its `id` "CONTEST/INDEX" names; null where the row says with generated_tests that
  // it has none, or where it says nothing and no folder is named. A file, or a problem in it, that is missing although
  // the row counts its tests is warned of once. Throws Error where there are such tests and no folder is named, and
  // where a file cannot be read.
  [[nodiscard]] StoredTests of(const Json& row);

 private:
  std::filesystem::path folder_;  // empty: none is named
  RowSource rows_;
  TestShelf shelf_;
};

}  // namespace hone

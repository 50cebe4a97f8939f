// Reads the tests that open-r1 generated for Codeforces problems: a folder with one Parquet file per contest.
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "reward/judging/stored_tests.h"
#include "reward/reward.h"

namespace hone {

class GeneratedTests {
 public:
  // `folder` holds files test_cases_CONTEST.parquet; if it is empty, the environment variable CF_TESTS_FOLDER names the
  // folder. Throws Error if the folder does not exist or contains no such file.
  GeneratedTests(const std::string& folder, RowSource rows);

  // Returns the generated tests of the row's problem, which its column `id`, "CONTEST/INDEX", names. The column
  // `generated_tests` holds their number. Returns null if the number is 0, if the column is missing and no folder is
  // given, or if the contest's file is missing. Logs once if tests that the row counts are missing. Throws Error if the
  // row counts tests and no folder is given, or if a file cannot be read.
  [[nodiscard]] StoredTests of(const Json& row);

 private:
  std::filesystem::path folder_;  // empty: no folder is given
  RowSource rows_;
  TestShelf shelf_;
};

}  // namespace hone

#include "reward/cf_code/generated_tests.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "reward/judging/contest.h"
#include "system/process.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr const char* kVariable = "CF_TESTS_FOLDER";
constexpr std::string_view kHowToGetThem =
    "hf download open-r1/codeforces --repo-type dataset --include 'generated_tests/*.parquet' --local-dir DIR, then "
    "cf_tests_folder: DIR/generated_tests";

bool has_tests(const fs::path& folder) {
  const std::vector<std::string> names = list_folder(folder);
  return std::ranges::any_of(
      names, [](const std::string& name) { return name.starts_with("test_cases_") && name.ends_with(".parquet"); });
}

void check_folder(const fs::path& folder, const std::string& named_by) {
  const std::string where = text_of(named_by, " ", folder.string());
  if (!is_folder(folder)) throw Error(where, "is not a folder", std::string(kHowToGetThem));
  if (has_tests(folder)) return;
  const fs::path below = folder / "generated_tests";
  if (is_folder(below) && has_tests(below)) {
    throw Error(where, "contains no test_cases_*.parquet, but its folder generated_tests does",
                text_of("use ", below.string()));
  }
  throw Error(where, "contains no test_cases_*.parquet", std::string(kHowToGetThem));
}

// Returns the file name for a problem id: "1234/A" -> test_cases_1234.parquet, "12/A" -> test_cases_0012.parquet.
std::string file_name(std::string_view id) {
  std::int64_t contest = 0;
  const std::string_view number = id.substr(0, id.find('/'));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), contest);
  if (error != std::errc{} || end != number.data() + number.size() || contest < 0) {
    throw Error("the cf_code reward", text_of("the id ", id, " of a row does not begin with a contest number"),
                "a row with generated tests needs an id \"CONTEST/INDEX\"");
  }
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "test_cases_%04lld.parquet", static_cast<long long>(contest));
  return name.data();
}

}  // namespace

GeneratedTests::GeneratedTests(const std::string& folder, RowSource rows) : folder_(folder), rows_(std::move(rows)) {
  const bool is_key = !folder_.empty();
  if (!is_key) folder_ = environment_variable(kVariable);
  if (!folder_.empty()) check_folder(folder_, is_key ? "cf_tests_folder" : kVariable);
}

StoredTests GeneratedTests::of(const Json& row) {
  const std::optional<double> count = number_column(row, "generated_tests", "cf_code");
  if (count.value_or(folder_.empty() ? 0 : 1) <= 0) return nullptr;
  const std::string id = text_column(row, "id", "cf_code");
  if (folder_.empty()) {
    throw Error("the cf_code reward",
                text_of("the problem ", id, " has ", count.value_or(0), " generated tests, but neither ",
                        "cf_tests_folder nor ", kVariable, " names their folder"),
                std::string(kHowToGetThem));
  }
  const fs::path path = folder_ / file_name(id);
  if (!is_file(path)) {
    if (count) {
      log_once(text_of("cf_code: ", path.string(), " is missing: the problem ", id, " and others of its contest are ",
                       "judged by their official tests only"));
    }
    return nullptr;
  }
  StoredTests tests = shelf_.take(id, [&] {
    return read_stored_tests(rows_, {.dataset = path.string(),
                                     .config = {},
                                     .key_column = "problem_id",
                                     .key = id,
                                     .columns = {"problem_id", "input", "output"}});
  });
  if (tests->empty() && count) {
    log_once(text_of("cf_code: ", path.string(), " has no tests of the problem ", id,
                     ", which is judged by its official ", "tests only"));
  }
  return tests;
}

}  // namespace hone

#include "backend/gemm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/paths.h"

namespace hone::test {
namespace {

constexpr const char* kDevice = "NVIDIA H100, 80GB";
constexpr std::int64_t kVersion = 130100;

GemmKey key_of(std::int64_t m) {
  return {.m = m,
          .n = 3584,
          .k = 18944,
          .lda = 18944,
          .ldb = 18944,
          .ldc = 3584,
          .transpose_a = false,
          .transpose_b = true,
          .accumulate = false,
          .bias = true,
          .a_type = DType::kBf16,
          .b_type = DType::kBf16,
          .c_type = DType::kF32};
}

GemmChoice choice_of(std::uint64_t first) {
  return {.algorithm = {first, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}},
          .description = "id 66, tile 24",
          .microseconds = 1234.5,
          .default_microseconds = 1300.25};
}

class GemmTableTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path() const { return directory_.path() / "deeper" / "gemm.csv"; }

  // Writes a table of two GEMMs.
  void write_good() {
    GemmTable table(kDevice, kVersion);
    table.set(key_of(8192), choice_of(1));
    table.set(key_of(1), choice_of(2));
    table.write(path());
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(GemmTableTest, ReadsWhatItWrote) {
  write_good();
  GemmTable table(kDevice, kVersion);
  table.read(path());
  ASSERT_EQ(table.size(), 2u);
  const GemmChoice* choice = table.find(key_of(8192));
  ASSERT_NE(choice, nullptr);
  EXPECT_EQ(choice->algorithm, choice_of(1).algorithm);
  EXPECT_EQ(choice->description, "id 66  tile 24");
  EXPECT_EQ(choice->microseconds, 1234.5);
  EXPECT_EQ(choice->default_microseconds, 1300.25);
  EXPECT_EQ(table.find(key_of(1))->algorithm[0], 2u);
  EXPECT_EQ(table.find(key_of(2)), nullptr);
  GemmKey other = key_of(8192);
  other.accumulate = true;
  EXPECT_EQ(table.find(other), nullptr);
}

TEST_F(GemmTableTest, KeepsRowsOfOtherDevicesAndVersions) {
  write_good();
  GemmTable other("NVIDIA H200", kVersion);
  other.read(path());
  EXPECT_EQ(other.size(), 0u);
  EXPECT_EQ(other.rows_of_other_devices(), 2u);
  other.set(key_of(7), choice_of(3));
  other.write(path());
  GemmTable newer(kDevice, kVersion + 1);
  newer.read(path());
  EXPECT_EQ(newer.size(), 0u);
  EXPECT_EQ(newer.rows_of_other_devices(), 3u);
  GemmTable table(kDevice, kVersion);
  table.read(path());
  table.read(path());
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.rows_of_other_devices(), 1u);
}

TEST_F(GemmTableTest, RefusesWhatIsDamaged) {
  write_good();
  const std::string good = read_file(path());
  const std::vector<std::string> lines = split(good, '\n');
  ASSERT_EQ(lines.size(), 4u);
  const auto with_row = [&](const std::string& row) { return lines[0] + "\n" + row + "\n" + lines[2] + "\n"; };
  const std::string& row = lines[1];
  std::string flipped = row;
  flipped[row.find("0000000000000002") + 3] = '8';
  const std::vector<std::string> bad = {
      "",
      "\n",
      "hello",
      lines[1] + "\n" + lines[2] + "\n",              // no header
      "\xEF\xBB\xBF" + good,                          // a byte order mark
      lines[0] + ",more\n" + lines[1] + "\n",         // other columns
      lines[0] + "\r\n" + lines[1] + "\r\n",          // Windows line ends
      with_row(""),                                   // an empty row between others
      with_row(","),                                  // two empty fields
      with_row(std::string(20, ',')),                 // the right number of fields, all empty
      with_row(row.substr(0, row.size() / 2)),        // a truncated row
      with_row(row + ",1"),                           // an extra field
      with_row(flipped),                              // a flipped bit in the algorithm
      with_row(row.substr(0, row.rfind(',') + 1)),    // no checksum
      with_row(std::string(row).replace(0, 1, "X")),  // a damaged device name
      with_row(std::string(100000, '9')),             // a field of 100,000 digits
      with_row(std::string("\0\0\0", 3) + row),       // three null bytes
      good.substr(0, good.size() - 5),                // a truncated file
      good + "\n\n",                                  // empty rows at the end
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    write_file(path(), bad[i]);
    GemmTable table(kDevice, kVersion);
    table.set(key_of(3), choice_of(9));
    try {
      table.read(path());
      ADD_FAILURE() << "read: case " << i;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("gemm.csv")) << i;
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n"))) << i;
    }
    EXPECT_EQ(table.size(), 1u) << "case " << i << " was half read";
  }
}

// Rejects rows with a correct checksum and one invalid field.
TEST_F(GemmTableTest, RefusesFieldsThatMakeNoSense) {
  write_good();
  const std::string good = read_file(path());
  const std::vector<std::string> lines = split(good, '\n');
  const auto checked = [](const std::string& row) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : row) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
    return row + text;
  };
  const auto with_field = [&](std::size_t index, const std::string& value) {
    std::vector<std::string> fields = split(lines[1], ',');
    fields[index] = value;
    fields.pop_back();
    return lines[0] + "\n" + checked(join(fields, ",") + ",") + "\n";
  };
  write_file(path(), with_field(2, "64"));  // with a valid field the row must be accepted
  GemmTable fine(kDevice, kVersion);
  fine.read(path());
  EXPECT_EQ(fine.size(), 1u);

  const std::vector<std::pair<std::size_t, std::string>> bad = {
      {1, "x"},
      {2, "0"},
      {2, "-5"},
      {2, "1e3"},
      {2, "99999999999999999999"},
      {3, ""},
      {4, "9223372036854775807"},
      {5, " 1"},
      {8, "2"},
      {9, "true"},
      {12, "i32"},
      {13, "BF16"},
      {14, ""},
      {15, "abc"},
      {15, std::string(128, 'g')},
      {17, "nan"},
      {17, "inf"},
      {17, "-1"},
      {17, "0"},
      {18, "1e5"},
      {18, "fast"},
  };
  for (const auto& [index, value] : bad) {
    write_file(path(), with_field(index, value));
    GemmTable table(kDevice, kVersion);
    EXPECT_THROW(table.read(path()), Error) << "field " << index << " = '" << value << "'";
    EXPECT_EQ(table.size(), 0u);
  }
}

TEST_F(GemmTableTest, LiesInTheCacheFolder) {
  const GemmTable table("NVIDIA H100 80GB HBM3", 130100);
  const std::string name = "gemm-NVIDIA_H100_80GB_HBM3-130100.csv";
  const auto with = [&](Variables variables) {  // with only these of the three variables set
    variables.insert({{"HONE_CACHE", {}}, {"XDG_CACHE_HOME", {}}, {"HOME", {}}});
    const Environment environment(variables);
    return table.default_path();
  };
  EXPECT_EQ(with({{"HONE_CACHE", "/some/where"}, {"XDG_CACHE_HOME", "/the/cache"}}), "/some/where/" + name);
  EXPECT_EQ(with({{"XDG_CACHE_HOME", "/the/cache"}, {"HOME", "/home/of/someone"}}), "/the/cache/hone/" + name);
  EXPECT_EQ(with({{"HOME", "/home/of/someone"}}), "/home/of/someone/.cache/hone/" + name);
  EXPECT_EQ(with({}), "./" + name);
}

TEST_F(GemmTableTest, IsFoundInItsFormerFolder) {
  const std::filesystem::path home = path().parent_path() / "home";
  const std::filesystem::path cache = path().parent_path() / "cache";
  const GemmTable table(kDevice, kVersion);
  const Environment environment({{"HONE_CACHE", {}}, {"XDG_CACHE_HOME", cache.string()}, {"HOME", home.string()}});
  const std::filesystem::path now = table.default_path();
  EXPECT_EQ(now.parent_path(), cache / "hone");
  const std::filesystem::path former = home / ".cache" / "hone" / now.filename();
  table.write(former);
  EXPECT_EQ(table.default_path(), former);
  {
    const Environment own({{"HONE_CACHE", (home / "own").string()}});
    EXPECT_EQ(table.default_path(), home / "own" / now.filename());
  }
  table.write(now);
  EXPECT_EQ(table.default_path(), now);
}

TEST(GemmKey, SaysItsFlopsAndItself) {
  EXPECT_EQ(flops_of(key_of(2)), 2.0 * 2 * 3584 * 18944);
  EXPECT_EQ(to_text(key_of(2)), "2 x 3584 x 18944 bf16 to f32");
}

}  // namespace
}  // namespace hone::test

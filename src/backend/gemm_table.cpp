#include "backend/gemm_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "system/cache_folder.h"
#include "system/process.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHeader =
    "device,cublaslt,m,n,k,lda,ldb,ldc,transpose_a,transpose_b,accumulate,bias,a_type,b_type,c_type,algorithm,"
    "description,microseconds,default_microseconds,tflops,check";
constexpr std::size_t kFields = 21;
constexpr std::size_t kHexOfWord = 16;
constexpr std::uintmax_t kLargestFile = std::uintmax_t{64} << 20;  // bytes; hone writes no file that large
constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;       // upper bound of all integers in a row

// FNV-1a hash of a row. The algorithms are opaque to hone, so rows that were damaged or edited must not reach the
// library.
std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

std::string hex(std::uint64_t word) {
  std::array<char, kHexOfWord + 1> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(word));
  return text.data();
}

std::string decimal(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", value);
  return text.data();
}

// Converts text to a CSV field without quotes: commas, quotes and control characters become blanks.
std::string field_of(std::string_view text) {
  std::string field(text);
  for (char& c : field) {
    if (c == ',' || c == '"' || static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return field;
}

template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  Number value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<Number>) {
    result = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  } else {
    result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  }
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reader of the fields of one row, in order. The constructor verifies the number of fields and the checksum.
class Row {
 public:
  Row(std::string place, std::string_view line) : place_(std::move(place)), fields_(split(line, ',')) {
    if (fields_.size() != kFields) refuse(text_of("has ", fields_.size(), " fields, expected ", kFields));
    const std::string_view checked = line.substr(0, line.rfind(',') + 1);
    if (fields_.back() != hex(checksum(checked))) refuse("is damaged: its checksum does not match");
  }

  const std::string& text() { return fields_[at_++]; }
  std::int64_t size() {
    const std::string& field = text();
    const auto value = number<std::int64_t>(field);
    if (!value || *value < 1 || *value > kLargestSize) refuse(text_of("expected a size, saw '", field, "'"));
    return *value;
  }
  bool flag() {
    const std::string& field = text();
    if (field != "0" && field != "1") refuse(text_of("expected 0 or 1, saw '", field, "'"));
    return field == "1";
  }
  DType dtype() {
    const std::string& field = text();
    for (const DType known : {DType::kF32, DType::kBf16, DType::kF64}) {
      if (field == name_of(known)) return known;
    }
    refuse(text_of("expected f32, bf16 or f64, saw '", field, "'"));
  }
  std::array<std::uint64_t, 8> words() {
    const std::string& field = text();
    std::array<std::uint64_t, 8> words{};
    if (field.size() != kHexOfWord * words.size()) refuse("has no algorithm of 128 hexadecimal digits");
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto word = number<std::uint64_t>(std::string_view(field).substr(i * kHexOfWord, kHexOfWord), 16);
      if (!word) refuse("has no algorithm of 128 hexadecimal digits");
      words[i] = *word;
    }
    return words;
  }
  double positive() {
    const std::string& field = text();
    const auto value = number<double>(field);
    if (!value || !(*value > 0) || *value > 1e12) refuse(text_of("expected a time above 0, saw '", field, "'"));
    return *value;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(place_, what, "remove the file, or write another one with --tune_gemm --gemm_table FILE");
  }

  std::string place_;
  std::vector<std::string> fields_;
  std::size_t at_ = 0;
};

std::string row_text(const std::string& device, std::int64_t version, const GemmKey& key, const GemmChoice& choice) {
  std::string algorithm;
  for (const std::uint64_t word : choice.algorithm) algorithm += hex(word);
  const std::string row =
      text_of(device, ",", version, ",", key.m, ",", key.n, ",", key.k, ",", key.lda, ",", key.ldb, ",", key.ldc, ",",
              key.transpose_a, ",", key.transpose_b, ",", key.accumulate, ",", key.bias, ",", name_of(key.a_type), ",",
              name_of(key.b_type), ",", name_of(key.c_type), ",", algorithm, ",", field_of(choice.description), ",",
              decimal(choice.microseconds), ",", decimal(choice.default_microseconds), ",",
              decimal(flops_of(key) / choice.microseconds * 1e-6), ",");
  return row + hex(checksum(row));
}

}  // namespace

double flops_of(const GemmKey& key) {
  return 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
}

std::string to_text(const GemmKey& key) {
  return text_of(key.m, " x ", key.n, " x ", key.k, " ", name_of(key.a_type),
                 key.c_type == key.a_type ? "" : text_of(" to ", name_of(key.c_type)),
                 key.transpose_a   ? " (weight gradient)"
                 : key.transpose_b ? ""
                                   : " (input gradient)");
}

GemmTable::GemmTable(std::string_view device, std::int64_t version) : device_(field_of(device)), version_(version) {}

fs::path GemmTable::default_path() const {
  std::string device = device_;
  for (char& c : device) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain) c = '_';
  }
  const std::string name = text_of("gemm-", device, "-", version_, ".csv");
  const fs::path folder = cache_folder();
  fs::path path = (folder.empty() ? fs::path(".") : folder) / name;
  if (is_file(path) || !environment_variable("HONE_CACHE").empty() || environment_variable("HOME").empty()) return path;
  // Earlier versions ignored XDG_CACHE_HOME and wrote the file here.
  const fs::path former = expand_home("~/.cache/hone") / name;
  return is_file(former) ? former : path;
}

void GemmTable::read(const fs::path& path) {
  std::error_code unknown;
  const std::uintmax_t bytes = fs::file_size(path, unknown);
  if (!unknown && bytes > kLargestFile) throw Error(path.string(), "is too large for a GEMM table");
  const std::vector<std::string> lines = split(read_file(path), '\n');
  if (lines.empty() || lines[0] != kHeader) {
    throw Error(path.string(), "is not a GEMM table of this version: its first line differs",
                "remove the file, or select another one with --gemm_table");
  }
  std::map<GemmKey, GemmChoice> choices = choices_;
  std::vector<std::string> foreign = foreign_;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty() && i + 1 == lines.size()) break;
    Row row(text_of(path.string(), ":", i + 1), lines[i]);
    const bool own = row.text() == device_;
    if (const std::int64_t version = row.size(); !own || version != version_) {
      if (std::ranges::find(foreign, lines[i]) == foreign.end()) foreign.push_back(lines[i]);
      continue;
    }
    // Braced initializers are evaluated from left to right, so the fields are read in the order of the columns.
    const GemmKey key{row.size(), row.size(), row.size(), row.size(),  row.size(),  row.size(), row.flag(),
                      row.flag(), row.flag(), row.flag(), row.dtype(), row.dtype(), row.dtype()};
    GemmChoice choice;
    choice.algorithm = row.words();
    choice.description = row.text();
    choice.microseconds = row.positive();
    choice.default_microseconds = row.positive();
    choices[key] = std::move(choice);
  }
  choices_ = std::move(choices);
  foreign_ = std::move(foreign);
}

void GemmTable::write(const fs::path& path) const {
  std::string text = std::string(kHeader) + "\n";
  for (const std::string& row : foreign_) text += row + "\n";
  for (const auto& [key, choice] : choices_) text += row_text(device_, version_, key, choice) + "\n";
  if (path.has_parent_path()) hone::create_directories(path.parent_path());
  write_file(path, text);
}

const GemmChoice* GemmTable::find(const GemmKey& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

}  // namespace hone

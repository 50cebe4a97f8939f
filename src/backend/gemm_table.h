// Table of the fastest cuBLASLt algorithm for each GEMM, measured once and stored in a CSV file.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace hone {

// Identity of a GEMM: GemmArgs without the pointers. All calls with one key run the same kernel.
struct GemmKey {
  std::int64_t m, n, k, lda, ldb, ldc;
  bool transpose_a, transpose_b, accumulate, bias;
  DType a_type, b_type, c_type;
  auto operator<=>(const GemmKey&) const = default;
};

[[nodiscard]] double flops_of(const GemmKey& key);
[[nodiscard]] std::string to_text(const GemmKey& key);  // "8192 x 3584 x 18944 bf16"

// An algorithm and its measured time.
struct GemmChoice {
  std::array<std::uint64_t, 8> algorithm{};  // the bytes of cublasLtMatmulAlgo_t
  std::string description;                   // for readers: "id 66 tile 24 cluster 2"; commas become blanks in the file
  double microseconds = 0;                   // time of this algorithm
  double default_microseconds = 0;           // time of the library's default algorithm
};

// Choices for one device and one version of the library. Rows of other devices or versions in a file are kept, but not
// used.
class GemmTable {
 public:
  GemmTable(std::string_view device, std::int64_t version);

  // Returns gemm-DEVICE-VERSION.csv in the cache folder (system/cache_folder.h), or in the working directory if there
  // is no cache folder. If XDG_CACHE_HOME moved the cache and the file does not exist there, an existing one in
  // ~/.cache/hone is used.
  [[nodiscard]] std::filesystem::path default_path() const;
  // Adds the rows of a file. Throws Error with the line if the file has another format or a row is damaged; the table
  // is then unchanged.
  void read(const std::filesystem::path& path);
  // Replaces the file atomically and creates its folder if necessary.
  void write(const std::filesystem::path& path) const;

  [[nodiscard]] const GemmChoice* find(const GemmKey& key) const;
  void set(const GemmKey& key, GemmChoice choice) { choices_[key] = std::move(choice); }
  [[nodiscard]] std::size_t size() const { return choices_.size(); }
  [[nodiscard]] std::size_t rows_of_other_devices() const { return foreign_.size(); }  // of other devices or versions

 private:
  std::string device_;
  std::int64_t version_;
  std::map<GemmKey, GemmChoice> choices_;
  std::vector<std::string> foreign_;
};

}  // namespace hone

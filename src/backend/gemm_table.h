// The fastest algorithm of a library for each matrix product, as measured once and kept in a CSV.
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

// What decides how a product is computed: GemmArgs without its pointers.
struct GemmKey {
  std::int64_t m, n, k, lda, ldb, ldc;
  bool transpose_a, transpose_b, accumulate, bias;
  DType a_type, b_type, c_type;
  auto operator<=>(const GemmKey&) const = default;
};

[[nodiscard]] double flops_of(const GemmKey& key);
[[nodiscard]] std::string to_text(const GemmKey& key);  // "8192 x 3584 x 18944 bf16"

// An algorithm as the library serialises it, and what was measured.
struct GemmChoice {
  std::array<std::uint64_t, 8> algorithm{};
  std::string description;        // for readers: "id 66, tile 24, cluster 2"; no comma survives
  double microseconds = 0;        // of the algorithm
  double first_microseconds = 0;  // of the one that the library would have taken
};

// The choices for one device and one version of the library. A file may hold those of others too: they are kept.
class GemmTable {
 public:
  GemmTable(std::string_view device, std::int64_t version);

  // gemm-DEVICE-VERSION.csv in hone's cache (system/cache_folder.h), or in the working folder where there is none. A
  // file in ~/.cache/hone is taken although the cache is below XDG_CACHE_HOME, as long as there is none.
  [[nodiscard]] std::filesystem::path default_path() const;
  // Adds what the file holds. Throws Error, with the line, where it is no such file or a row was damaged; the table is
  // then as it was.
  void read(const std::filesystem::path& path);
  // Written beside and renamed.
  void write(const std::filesystem::path& path) const;

  [[nodiscard]] const GemmChoice* find(const GemmKey& key) const;
  void set(const GemmKey& key, GemmChoice choice) { choices_[key] = std::move(choice); }
  [[nodiscard]] std::size_t size() const { return choices_.size(); }
  [[nodiscard]] std::size_t foreign_rows() const { return foreign_.size(); }  // of other devices or versions

 private:
  std::string device_;
  std::int64_t version_;
  std::map<GemmKey, GemmChoice> choices_;
  std::vector<std::string> foreign_;
};

}  // namespace hone

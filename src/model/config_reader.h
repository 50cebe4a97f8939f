// Reads typed values from config.json or another JSON object. Each function throws Error with the file, the key, the
// value seen and the expected value if the key is missing or its value is invalid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

// Largest integer allowed in a configuration, so that products of two of them fit easily into 64 bits.
inline constexpr std::int64_t kMostConfig = 1'000'000'000;

class ConfigReader {
 public:
  explicit ConfigReader(const Json& config, std::string_view file = "config.json") : config_(config), file_(file) {}

  // The functions with `otherwise` return it if the key is missing or null.
  [[nodiscard]] bool has(std::string_view key) const;  // the key exists and is not null
  [[nodiscard]] std::int64_t positive(std::string_view key) const;
  [[nodiscard]] std::int64_t positive(std::string_view key, std::int64_t otherwise) const;
  [[nodiscard]] std::int64_t not_negative(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key, double otherwise) const;
  [[nodiscard]] bool boolean(std::string_view key, bool otherwise) const;
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise) const;
  // Throws Error if a boolean key has a value other than `wanted`.
  void require(std::string_view key, bool wanted) const;
  [[nodiscard]] ConfigReader object(std::string_view key) const;

 private:
  [[nodiscard]] const Json& at(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

  const Json& config_;
  std::string_view file_;
};

}  // namespace hone

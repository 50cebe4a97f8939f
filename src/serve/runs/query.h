// The parameters of a request's query, with percent-encoding decoded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace hone {

class QueryParameters {
 public:
  // Reads what follows the question mark of a request's target. Of repeated keys the first counts. Throws RequestError
  // if percent-encoding is malformed.
  explicit QueryParameters(std::string_view target);

  // Returns the value of a key; empty if it is absent.
  [[nodiscard]] std::string text(const std::string& key) const;
  // Returns the value of a key as a whole number; `usual` if it is absent. Throws RequestError if it is no number or
  // out of range.
  [[nodiscard]] std::int64_t integer(const std::string& key, std::int64_t usual, std::int64_t least,
                                     std::int64_t most) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace hone

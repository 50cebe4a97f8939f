#include "serve/runs/query.h"

#include <algorithm>
#include <charconv>

#include "core/strings.h"
#include "serve/request_error.h"

namespace hone {
namespace {

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2)
      throw RequestError({}, "the query has a % that two hexadecimal digits do not follow");
    result += static_cast<char>(byte);
    i += 2;
  }
  return result;
}

}  // namespace

QueryParameters::QueryParameters(std::string_view target) {
  const std::size_t begin = target.find('?');
  if (begin == std::string_view::npos) return;
  for (const std::string& pair : split(target.substr(begin + 1), '&')) {
    const std::string_view part = pair;
    const std::size_t equals = std::min(part.find('='), part.size());
    if (equals == 0) continue;
    values_.emplace(percent_decoded(part.substr(0, equals)),
                    percent_decoded(part.substr(std::min(equals + 1, part.size()))));
  }
}

std::string QueryParameters::text(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string() : found->second;
}

std::int64_t QueryParameters::integer(const std::string& key, std::int64_t usual, std::int64_t least,
                                      std::int64_t most) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return usual;
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw RequestError(key, text_of("is \"", text, "\""), text_of("expected ", least, " to ", most));
  return value;
}

}  // namespace hone

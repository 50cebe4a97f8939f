#include "http/message.h"

#include <algorithm>

namespace hone {
namespace {

char lower_of(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

}  // namespace

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower_of(x) == lower_of(y); });
}

std::string_view ServerRequest::header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [&](const auto& one) { return equal_in_any_case(one.first, name); });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string_view ServerRequest::path() const { return std::string_view(target).substr(0, target.find('?')); }

}  // namespace hone

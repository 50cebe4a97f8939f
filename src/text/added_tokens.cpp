#include "text/added_tokens.h"

#include <algorithm>

#include "core/unicode.h"

namespace hone {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() && properties_of(decode_utf8(text, previous_utf8(text, text.size())).value).word();
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && properties_of(decode_utf8(text, 0).value).word();
}

std::size_t begin_of_trailing_space(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0) {
    const std::size_t before = previous_utf8(text, at);
    if (!properties_of(decode_utf8(text, before).value).white_space()) break;
    at = before;
  }
  return at;
}

std::size_t end_of_leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto [c, size] = decode_utf8(text, at);
    if (!properties_of(c).white_space()) break;
    at += size;
  }
  return at;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : content) {
    const auto next = static_cast<std::uint32_t>(nodes_.size());
    const auto [child, is_new] = nodes_[node].children.emplace(static_cast<unsigned char>(byte), next);
    node = child->second;
    if (is_new) nodes_.emplace_back();
  }
  starts_[static_cast<unsigned char>(content.front())] = true;
  nodes_[node].token = static_cast<int>(tokens_.size());
  tokens_.push_back(token);
}

std::pair<int, std::size_t> AddedTokenMatcher::longest(std::string_view text, std::size_t at) const {
  std::pair<int, std::size_t> best{-1, 0};
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto child = nodes_[node].children.find(static_cast<unsigned char>(text[i]));
    if (child == nodes_[node].children.end()) break;
    node = child->second;
    if (nodes_[node].token >= 0) best = {nodes_[node].token, i + 1 - at};
  }
  return best;
}

std::vector<AddedTokenMatcher::Segment> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto [index, length] = longest(text, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = at;
    std::size_t end = at + length;
    at = end;  // the search continues after the match, whatever is stripped
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(begin_of_trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += end_of_leading_space(text.substr(end));
    if (done < begin) segments.push_back({text.substr(done, begin - done), -1});
    segments.push_back({text.substr(begin, end > begin ? end - begin : 0), token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
  return segments;
}

}  // namespace hone

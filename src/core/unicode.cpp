#include "core/unicode.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <vector>

#include "core/unicode_tables.h"

namespace hone {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr std::size_t kBlock = 256;

// Maps every code point to a value by two lookups, block and value; equal blocks of 256 values are stored once.
template <class Value>
class TwoStageTable {
 public:
  template <class Run>
  TwoStageTable(std::span<const Run> runs, Value Run::* value) {
    std::map<std::array<Value, kBlock>, std::uint16_t> seen;
    std::map<Value, std::uint16_t> uniform;  // blocks of one value, which most are
    std::size_t run = 0;
    for (char32_t first = 0; first < kCodePoints; first += kBlock) {
      const auto next_run = [&] { return run + 1 < runs.size() ? runs[run + 1].first : kCodePoints; };
      while (next_run() <= first) ++run;
      const bool is_uniform = next_run() >= first + kBlock;
      if (is_uniform) {
        if (const auto known = uniform.find(runs[run].*value); known != uniform.end()) {
          blocks_[first / kBlock] = known->second;
          continue;
        }
      }
      std::array<Value, kBlock> block{};
      for (std::size_t i = 0; i < kBlock; ++i) {
        while (next_run() <= first + i) ++run;
        block[i] = runs[run].*value;
      }
      const auto [entry, is_new] = seen.emplace(block, static_cast<std::uint16_t>(seen.size()));
      if (is_new) values_.insert(values_.end(), block.begin(), block.end());
      if (is_uniform) uniform.emplace(block[0], entry->second);
      blocks_[first / kBlock] = entry->second;
    }
  }
  [[nodiscard]] Value operator[](char32_t c) const {
    return c < kCodePoints ? values_[blocks_[c / kBlock] * kBlock + c % kBlock] : Value{};
  }

 private:
  std::array<std::uint16_t, kCodePoints / kBlock> blocks_{};
  std::vector<Value> values_;
};

std::uint8_t combining_class(char32_t c) {
  static const TwoStageTable<std::uint8_t> table(combining_runs(), &CombiningRun::combining_class);
  return table[c];
}

// Constants of the arithmetic composition of Hangul syllables (The Unicode Standard, section 3.12).
constexpr char32_t kHangul = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kVowels = 21, kTrailings = 28, kSyllables = 11172;

const Decomposition* find_decomposition(std::span<const Decomposition> table, char32_t c) {
  const auto found = std::lower_bound(table.begin(), table.end(), c,
                                      [](const Decomposition& d, char32_t value) { return d.code_point < value; });
  return found == table.end() || found->code_point != c ? nullptr : &*found;
}

void append_decomposed(std::vector<char32_t>& out, char32_t c, bool compatibility) {
  if (c - kHangul < kSyllables) {
    const char32_t index = c - kHangul;
    out.push_back(kLeading + index / (kVowels * kTrailings));
    out.push_back(kVowel + index % (kVowels * kTrailings) / kTrailings);
    if (index % kTrailings != 0) out.push_back(kTrailing + index % kTrailings);
    return;
  }
  const Decomposition* found = compatibility ? find_decomposition(compatibility_decompositions(), c) : nullptr;
  if (found == nullptr) found = find_decomposition(decompositions(), c);
  if (found == nullptr) {
    out.push_back(c);
    return;
  }
  const auto parts = decomposed_code_points().subspan(found->offset, found->length);
  out.insert(out.end(), parts.begin(), parts.end());
}

std::vector<char32_t> decompose(std::string_view text, bool compatibility) {
  std::vector<char32_t> points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    append_decomposed(points, c, compatibility);
    at += size;
  }
  // Canonical ordering: sort the marks between two starters stably by combining class.
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if(begin, points.end(), [](char32_t c) { return combining_class(c) != 0; });
    const auto end = std::find_if(begin, points.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  return points;
}

char32_t composed(char32_t a, char32_t b) {  // 0 if the pair has no composition
  if (a - kLeading < 19 && b - kVowel < kVowels) {
    return kHangul + ((a - kLeading) * kVowels + (b - kVowel)) * kTrailings;
  }
  if (a - kHangul < kSyllables && (a - kHangul) % kTrailings == 0 && b - kTrailing - 1 < kTrailings - 1) {
    return a + (b - kTrailing);
  }
  const auto table = compositions();
  const auto found = std::lower_bound(
      table.begin(), table.end(), std::pair(a, b),
      [](const Composition& c, std::pair<char32_t, char32_t> pair) { return std::pair(c.first, c.second) < pair; });
  return found != table.end() && found->first == a && found->second == b ? found->composed : 0;
}

void compose(std::vector<char32_t>& points) {
  std::size_t kept = 0;
  std::size_t starter = points.size();  // index of the last starter; points.size(): none yet
  int last_class = -1;                  // combining class of the last mark kept after the starter; -1: none
  for (const char32_t c : points) {
    const int current = combining_class(c);
    if (starter < points.size() && last_class < current) {
      if (const char32_t pair = composed(points[starter], c); pair != 0) {
        points[starter] = pair;
        continue;
      }
    }
    if (current == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = current;
    }
    points[kept++] = c;
  }
  points.resize(kept);
}

std::string encoded(std::span<const char32_t> points) {
  std::string text;
  text.reserve(points.size() * 2);
  for (const char32_t c : points) append_utf8(text, c);
  return text;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

const CaseMapping* find_case(std::span<const CaseMapping> table, char32_t c) {
  const auto found = std::lower_bound(table.begin(), table.end(), c,
                                      [](const CaseMapping& m, char32_t value) { return m.code_point < value; });
  return found == table.end() || found->code_point != c ? nullptr : &*found;
}

// Maps the case of each character: ASCII letters from..to by `shift`, others by the first table that lists them.
std::string mapped_case(std::string_view text, std::span<const CaseMapping> first, std::span<const CaseMapping> second,
                        char from, char to, int shift) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    if (c < 0x80) {
      const char letter = text[at];
      out.push_back(letter >= from && letter <= to ? static_cast<char>(letter + shift) : letter);
    } else {
      const CaseMapping* found = find_case(first, c);
      if (found == nullptr) found = find_case(second, c);
      if (found != nullptr) {
        out.append(found->text);
      } else {
        out.append(text.substr(at, size));
      }
    }
    at += size;
  }
  return out;
}

}  // namespace

Properties properties_of(char32_t code_point) {
  static const TwoStageTable<std::uint16_t> table(property_runs(), &PropertyRun::properties);
  return Properties(table[code_point]);
}

std::size_t previous_utf8(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

void append_utf8(std::string& text, char32_t c) {
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6);
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Utf8Unit scan_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const unsigned size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // After some lead bytes the range of the second byte is narrower, which excludes overlong forms, surrogates and code
  // points above U+10FFFF.
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (unsigned i = 1; i < size; ++i) {
    if (at + i >= text.size()) return {i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true, false};
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = scan_utf8(text, at);
    if (!unit.valid) return false;
    at += unit.size;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = scan_utf8(text, at);
    out.append(unit.valid ? text.substr(at, unit.size) : kReplacementCharacter);
    at += unit.size;
  }
  return out;
}

std::string normalize_nfc(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::vector<char32_t> points = decompose(text, false);
  compose(points);
  return encoded(points);
}

std::string normalize_nfd(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  return encoded(decompose(text, false));
}

std::string normalize_nfkc(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::vector<char32_t> points = decompose(text, true);
  compose(points);
  return encoded(points);
}

std::string normalize_nfkd(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  return encoded(decompose(text, true));
}

std::string to_lower_token(std::string_view text) {
  return mapped_case(text, token_lower_case_mappings(), lower_case_mappings(), 'A', 'Z', 'a' - 'A');
}
std::string to_lower(std::string_view text) {
  return mapped_case(text, lower_case_mappings(), {}, 'A', 'Z', 'a' - 'A');
}
std::string to_upper(std::string_view text) {
  return mapped_case(text, upper_case_mappings(), {}, 'a', 'z', 'A' - 'a');
}

}  // namespace hone

// Fuzz target: a split pattern in the first line, applied to the text in the other lines.
#include <string>

#include "core/json_value.h"
#include "core/unicode.h"
#include "fuzz/target.h"
#include "text/pre_tokenizer.h"

HONE_FUZZ_TARGET(pattern)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const std::string input = replace_invalid_utf8(fuzz::as_text(data, size));
  const auto [pattern, text] = fuzz::parted(input, '\n');
  for (const char* behavior : {"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Removed"}) {
    const Json json{{"type", "Split"}, {"pattern", {{"Regex", std::string(pattern)}}}, {"behavior", behavior}};
    const bool accepted = fuzz::accepts([&, &all = text] {
      const PreTokenizer splitter(json, "tokenizer.json");
      Pieces pieces;
      splitter.split(all, pieces, true);
      std::string joined;
      for (const std::string_view piece : pieces.views) joined += piece;
      HONE_ASSERT(joined == all || std::string_view(behavior) == "Removed", behavior, " loses text");
      HONE_ASSERT(is_valid_utf8(joined), behavior, " cuts within a character");
    });
    if (!accepted) break;
  }
  return 0;
}

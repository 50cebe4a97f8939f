// Fuzz target: tiktoken ranks and, after a zero byte, tokenizer_config.json. The tokenizer then encodes and decodes
// text.
#include <string>
#include <vector>

#include "core/unicode.h"
#include "fuzz/target.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

HONE_FUZZ_TARGET(ranks)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const auto [file, config] = fuzz::parted(fuzz::as_text(data, size), '\0');
  fuzz::accepts([&] {
    const Tokenizer tokenizer = Tokenizer::from_ranks(file, config);
    std::string text = "abcab ba<end>";
    text.append(file.substr(0, 200));
    const std::vector<TokenId> ids = tokenizer.encode(text);
    const std::string decoded = tokenizer.decode(ids);
    HONE_ASSERT(is_valid_utf8(decoded), "decode gives invalid UTF-8");
    Detokenizer detokenizer(tokenizer);
    std::string streamed = detokenizer.add(ids);
    streamed += detokenizer.flush();
    HONE_ASSERT(streamed == decoded, "streaming gives other text");
  });
  return 0;
}

// Fuzz target: tokenizer.json and, after a zero byte, tokenizer_config.json. The tokenizer then encodes and decodes
// text.
#include <string>
#include <vector>

#include "core/unicode.h"
#include "fuzz/target.h"
#include "text/tokenizer.h"

namespace hone::fuzz {
namespace {

void run(const Tokenizer& tokenizer, std::string_view text) {
  accepts([&] {
    const std::vector<TokenId> ids = tokenizer.encode(text);
    for (const TokenId id : ids) HONE_ASSERT(id >= 0 && id < tokenizer.vocab_size(), "the id ", id);
    HONE_ASSERT(is_valid_utf8(tokenizer.decode(ids)), "decode gives invalid UTF-8");
    HONE_ASSERT(tokenizer.encode(text) == ids, "a second encode gives other ids");
  });
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(tokenizer)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const auto [file, config] = fuzz::parted(fuzz::as_text(data, size), '\0');
  fuzz::accepts([&] {
    const Tokenizer tokenizer = Tokenizer::from_json(file, config);
    fuzz::run(tokenizer,
              "Hello, w\xC3\xB6rld! It's 12,345 <|endoftext|>  \n\t x\xCC\x81 \xF0\x9F\x98\x80 aaaaaaab\r\n");
    fuzz::run(tokenizer, file.substr(0, 512));
    for (const auto& id : {tokenizer.eos_token_id(), tokenizer.bos_token_id(), tokenizer.pad_token_id()}) {
      HONE_ASSERT(!id || *id < tokenizer.vocab_size(), "a special token has the id ", *id);
    }
  });
  return 0;
}

// Encoded data kept on disk, so that the next start of a run with the same data encodes nothing.
#pragma once

#include <filesystem>

#include "data/encode.h"
#include "data/prompt_set.h"

namespace hone {

// A folder of entries, each named by a fingerprint of all that tokens depend on: the program itself, the data's files
// (path, size, and when they were last changed), which of their rows and columns, in which order, the tokenizer, the
// template and the options. Entries are mapped, not read; a damaged one is made anew; where nothing can be written that
// is said once and the run goes on.
class TokenCache {
 public:
  TokenCache() = default;  // has nothing and keeps nothing
  // `writes`: keeps what is encoded, too.
  TokenCache(std::filesystem::path folder, bool writes) : folder_(std::move(folder)), writes_(writes) {}

  // As encode_examples and encode_prompts, whose reports come from the cache too; `report` is replaced.
  [[nodiscard]] ExampleSet examples(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                    const EncodeOptions& options, EncodingReport& report) const;
  [[nodiscard]] PromptSet prompts(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                  const PromptOptions& options, EncodingReport& report) const;

 private:
  std::filesystem::path folder_;  // empty: none
  bool writes_ = false;
};

// tokens/ in hone's cache; empty where there is none (system/cache_folder.h).
[[nodiscard]] std::filesystem::path token_cache_folder();

}  // namespace hone

// Caches encoded data on disk, so that the next run with the same data skips encoding.
#pragma once

#include <filesystem>

#include "data/encode.h"
#include "data/prompt_set.h"

namespace hone {

// A folder of entries. The name of an entry is a fingerprint of everything that its tokens depend on: the program
// itself, the data files (path, size and timestamps), the selected rows and columns and their order, the tokenizer, the
// chat template and the options. Entries are memory-mapped. A damaged entry is encoded again. If nothing can be
// written, a notice is logged once and the run continues.
class TokenCache {
 public:
  TokenCache() = default;  // disabled: finds and stores nothing
  // `writes`: also store newly encoded data.
  TokenCache(std::filesystem::path folder, bool writes) : folder_(std::move(folder)), writes_(writes) {}

  // Same results as encode_examples and encode_prompts. `report` is replaced; it comes from the cache with the data.
  [[nodiscard]] ExampleSet examples(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                    const EncodeOptions& options, EncodingReport& report) const;
  [[nodiscard]] PromptSet prompts(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                  const PromptOptions& options, EncodingReport& report) const;

 private:
  std::filesystem::path folder_;  // empty: disabled
  bool writes_ = false;
};

// Folder tokens/ in hone's cache; empty if there is no cache (system/cache_folder.h).
[[nodiscard]] std::filesystem::path token_cache_folder();

}  // namespace hone

// Texts for benchmarks of tokenizers and data that need no files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

// Returns arithmetic problems with worked solutions, about `bytes` of them. Every call returns the same texts.
[[nodiscard]] std::vector<std::string> generated_documents(std::int64_t bytes);
// Trains byte-level BPE on these documents.
[[nodiscard]] Tokenizer trained_tokenizer(const std::vector<std::string>& documents, std::int64_t vocab_size);

}  // namespace hone

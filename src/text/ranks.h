// Reads tokenizers in tiktoken's form: ranks of byte strings. The split pattern and the special tokens are not part of
// the file.
#pragma once

#include <filesystem>
#include <string_view>

#include "text/tokenizer_file.h"

namespace hone {

// Returns the ranks file of a folder: its only *.tiktoken file, or tokenizer.model; empty if there is none.
[[nodiscard]] std::filesystem::path find_ranks(const std::filesystem::path& folder);

// Returns the content that tokenizer.json would have. Special tokens are those that tokenizer_config.json lists with
// their ids; the split pattern is its "pat_str". Without these, both are those of the known model with the same number
// of ranks: Llama 3 and 4, Qwen up to 3 and from 3.5, GPT-2, cl100k_base, o200k_base (without the special tokens of the
// last two). Merges are in the order in which transformers' converter derives them. Throws Error for lines that are not
// base64 and a rank, clashing ranks, an unknown number of ranks without a pattern, and SentencePiece files.
[[nodiscard]] TokenizerFile read_ranks(std::string_view ranks, std::string_view config_json, std::string_view where);

}  // namespace hone

// tiktoken's form of a tokenizer: ranks of byte strings, without the pattern and the special tokens that go with them.
#pragma once

#include <filesystem>
#include <string_view>

#include "text/tokenizer_file.h"

namespace hone {

// The ranks of a folder: the one *.tiktoken file, or tokenizer.model; empty where there is none.
[[nodiscard]] std::filesystem::path find_ranks(const std::filesystem::path& folder);

// What tokenizer.json would say. The special tokens are those that tokenizer_config.json lists with their ids, the
// pattern is its "pat_str"; without them they are those of the model with as many ranks: Llama 3 and 4, Qwen to 3 and
// from 3.5, GPT-2, cl100k_base, o200k_base (the special tokens of the last two are not known here). Merges come in the
// order in which transformers' converter derives them. Throws Error for lines that are no base64 and rank, ranks that
// clash, another number of ranks without a pattern, and SentencePiece files.
[[nodiscard]] TokenizerFile read_ranks(std::string_view ranks, std::string_view config_json, std::string_view where);

}  // namespace hone

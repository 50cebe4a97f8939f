// A folder with everything that a tiny run needs: problems, a tokenizer, a model's configuration.
#pragma once

#include <filesystem>
#include <string>

namespace hone::test {

// data/{corpus,sft,prompts,held_out}.jsonl, tokenizer/, model.json (two layers of width 32).
void write_miniature(const std::filesystem::path& folder);

}  // namespace hone::test

// Completions from an OpenAI-compatible server.
// Source: https://platform.openai.com/docs/api-reference/chat/create
#pragma once

#include <span>
#include <string>

#include "data/journal.h"
#include "generate/prompts.h"

namespace hone {

// URL/chat/completions, where URL ends with /v1 unless it has another path. Throws Error for what is no http(s) URL.
[[nodiscard]] std::string completions_url(const std::string& endpoint);

// Asks for the completions of the prompts that the journal lacks, max_num_seqs at a time, each with a seed of its own.
// A prompt's row is appended when its last completion is there. Reasoning that comes apart from the content is put
// before it, between <think> and </think>. A request without an answer, or answered 408, 429 or 5xx, is sent again
// after a pause, which doubles or is the server's. Prompts that the server refuses (400, 413, 422) are left out with a
// warning. Throws Error where the server refuses everything or does not answer, and Interrupted.
void generate_at_endpoint(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, Journal& journal);

}  // namespace hone

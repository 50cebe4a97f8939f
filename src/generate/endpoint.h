// Generates completions with an OpenAI-compatible server.
// Source: https://platform.openai.com/docs/api-reference/chat/create
#pragma once

#include <span>
#include <string>

#include "data/journal.h"
#include "generate/prompts.h"

namespace hone {

// Returns URL/chat/completions; /v1 is appended to a URL without a path. Throws Error if it is not an http(s) URL.
[[nodiscard]] std::string completions_url(const std::string& endpoint);

// Requests the completions of the prompts that the journal lacks, max_num_seqs concurrently, each with a different
// seed. The row of a prompt is appended to the journal when its last completion has arrived. Reasoning that the server
// returns separately is placed before the content, between <think> and </think>. A request without an answer, or with
// status 408, 429 or 5xx, is repeated after a pause, which doubles each time or is the one that the server asks for.
// Prompts that the server refuses (400, 413, 422) are left out with a warning. Throws Error if the server refuses every
// prompt or does not answer, and Interrupted after Ctrl+C.
void generate_at_endpoint(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, Journal& journal);

}  // namespace hone

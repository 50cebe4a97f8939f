#include "engine/request_stream.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace hone {

RequestStream::RequestStream(const Tokenizer& tokenizer, RequestId id, Request request, std::int64_t vocab_size)
    : detokenizer_(tokenizer, true), vocab_size_(vocab_size) {
  std::erase_if(request.sampling.stop, [](const std::string& stop) { return stop.empty(); });
  sequence.id = id;
  sequence.sampling = std::move(request.sampling);
  sequence.adapter = request.adapter;
  sequence.tokens = std::move(request.prompt);
  sequence.prompt_length = sequence.length();
  if (sequence.sampling.adjusts_logits()) sequence.entries.emplace(sequence.sampling, sequence.tokens);
  if (request.constraint.grammar != nullptr)
    constraint_.emplace(tokenizer, request.constraint, sequence.sampling.stop_token_ids, vocab_size);
  if (sequence.sampling.has_bans()) bans_.emplace(sequence.sampling, vocab_size);
  set_mask();
}

void RequestStream::begin(const DrawnTokens& begun, std::int64_t max_model_len) {
  for (std::size_t i = 0; i < begun.tokens.size() && !finished(); ++i) {
    if (is_constrained()) follow_grammar(begun.tokens[i]);
    accept(sequence.tokens.size(), {begun.tokens[i], begun.logps[i]}, max_model_len);
  }
}

void RequestStream::set_mask() {
  if (bans_ && !bans_->is_active()) bans_.reset();
  sequence.mask = {};
  if (constraint_) sequence.mask = constraint_->mask();
  if (!bans_) return;
  if (constraint_)
    banned_mask_.assign(sequence.mask.begin(), sequence.mask.end());
  else
    banned_mask_.assign(static_cast<std::size_t>(mask_words(vocab_size_)), -1);
  bans_->apply(banned_mask_);
  sequence.mask = banned_mask_;
}

void RequestStream::follow_grammar(TokenId token) noexcept {
  try {
    if (constraint_) constraint_->accept(token);
    if (bans_) bans_->accept(token);
    set_mask();
  } catch (const std::exception&) {
    grammar_failed_ = true;
  }
}

void RequestStream::accept(std::size_t index, TokenLogprob sampled, std::int64_t max_model_len) {
  const TokenId token = sampled.token;
  sequence.tokens.resize(std::max(sequence.tokens.size(), index + 1));
  sequence.tokens[index] = token;
  if (sequence.entries) sequence.entries->add_generated(token);
  completion.tokens.push_back(token);
  completion.logps.push_back(sampled.logp);
  const SamplingParams& sampling = sequence.sampling;
  const bool stopped = std::ranges::find(sampling.stop_token_ids, token) != sampling.stop_token_ids.end();
  const auto length = static_cast<std::int64_t>(index) + 1;
  const bool full = length - sequence.prompt_length >= sampling.max_tokens || length >= max_model_len;
  const bool failed = constraint_ && (grammar_failed_ || constraint_->is_void());
  const bool ends = stopped || failed || (constraint_ && constraint_->is_exhausted());
  std::string piece;
  if (sampling.detokenize) {
    if (!stopped) piece = detokenizer_.add(token);
    if (ends || full) piece += detokenizer_.flush();
  }
  if (add_text(piece) || ends) {
    completion.finish_reason = failed ? FinishReason::kAbort : FinishReason::kStop;
  } else if (full) {
    completion.finish_reason = FinishReason::kLength;
  }
}

void RequestStream::accept_prompt(std::size_t index, float logp) {
  if (index == completion.prompt_logps.size() + 1) completion.prompt_logps.push_back(logp);
}

void RequestStream::list_prompt(std::vector<TokenLogprob> tokens) {
  if (completion.prompt_top_logprobs.size() < completion.prompt_logps.size())
    completion.prompt_top_logprobs.push_back(std::move(tokens));
}

std::string_view RequestStream::new_text() {
  const std::size_t end = std::max(released_, finished() ? completion.text.size() : safe_length());
  const std::string_view text = std::string_view(completion.text).substr(released_, end - released_);
  released_ = end;
  return text;
}

std::size_t RequestStream::safe_length() const {
  std::size_t safe = completion.text.size();
  for (const std::string& stop : sequence.sampling.stop) {
    for (std::size_t length = std::min(stop.size() - 1, completion.text.size()); length > 0; --length) {
      if (completion.text.ends_with(std::string_view(stop).substr(0, length))) {
        safe = std::min(safe, completion.text.size() - length);
        break;
      }
    }
  }
  return safe;
}

bool RequestStream::add_text(const std::string& piece) {
  const std::size_t before = completion.text.size();
  completion.text += piece;
  if (std::ssize(completion.tokens) <= sequence.sampling.min_tokens && sequence.sampling.min_tokens > 0) {
    stops_from_ = completion.text.size();
    return false;
  }
  std::size_t cut = std::string::npos;
  for (const std::string& stop : sequence.sampling.stop) {
    const std::size_t from = std::max(stops_from_, before > stop.size() ? before - stop.size() : 0);
    cut = std::min(cut, completion.text.find(stop, from));
  }
  if (cut == std::string::npos) return false;
  completion.text.resize(cut);
  return true;
}

}  // namespace hone

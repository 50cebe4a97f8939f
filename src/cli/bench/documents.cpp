#include "cli/bench/documents.h"

#include "data/arithmetic.h"
#include "text/bpe_trainer.h"

namespace hone {

std::vector<std::string> generated_documents(std::int64_t bytes) {
  constexpr std::int64_t kTerms = 5;
  constexpr std::int64_t kLargest = 900;
  std::vector<std::string> documents;
  std::int64_t left = bytes;
  for (std::uint64_t i = 0; left > 0; ++i) {
    const ArithmeticProblem problem = make_problem(1, "bench", i, kTerms, kLargest);
    documents.push_back(question_of(problem) + "\n" + correct_trace(problem) + "\n");
    left -= static_cast<std::int64_t>(documents.back().size());
  }
  return documents;
}

Tokenizer trained_tokenizer(const std::vector<std::string>& documents, std::int64_t vocab_size) {
  BpeTrainer trainer({.vocab_size = vocab_size, .special_tokens = {"<|endoftext|>"}, .eos_token = "<|endoftext|>"});
  for (const std::string& document : documents) trainer.add(document);
  return trainer.train();
}

}  // namespace hone

#include "support/miniature.h"

#include "core/files.h"
#include "data/arithmetic.h"
#include "text/bpe_trainer.h"

namespace hone::test {

void write_miniature(const std::filesystem::path& folder) {
  write_arithmetic(folder / "data", {.seed = 1, .corpus = 300, .traces = 60, .prompts = 40, .held_out = 20});
  BpeTrainer trainer({.vocab_size = 300,
                      .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
                      .eos_token = "<|endoftext|>"});
  trainer.add("What is 1 + 2? The answer is 3. The answer is 4.\n<think>\n</think>\n<answer>\n\\boxed{</answer>");
  trainer.train().save(folder / "tokenizer");
  write_file(folder / "model.json",
             R"({"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.05})");
}

}  // namespace hone::test

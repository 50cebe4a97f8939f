// The capacities of a generation engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "core/options.h"
#include "model/model.h"

namespace hone {

inline constexpr const char* kSharesHelp =
    "Processes on this machine among which the work is divided; each has the whole model on tensor_parallel_size GPUs";
inline constexpr const char* kTensorGroupHelp =
    "Processes that divide each layer, started on this machine unless torchrun, mpirun or srun started them";

inline constexpr const char* kLatentKvCacheHelp =
    "Keep latent rows in the KV cache of a DeepSeek model, which take a fraction of the memory of keys and values, and "
    "expand them in each step, which takes time; changes no result";

// The contents of the KV cache.
struct CacheOptions {
  // The latent rows of multi-head latent attention in place of keys and values. Takes a fraction of the memory.
  bool latent_kv_cache = false;
  // Expanded, each step computes keys and values from the rows of its requests, which takes time in proportion to them
  // and changes no bit of a result. Absorbed attention rounds elsewhere than training, for all tokens of all requests
  // alike, so that what a request computes still depends on its tokens alone. Needs latent_kv_cache.
  LatentForm latent_attention = LatentForm::kExpanded;
  // Rounds keys and values to FP8 as they are written (model/batch.h). What a request computes still depends on its
  // tokens alone.
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;

  template <class Visitor>
  void fields(Visitor& v) {
    v("latent_kv_cache", latent_kv_cache, kLatentKvCacheHelp);
    v("latent_attention", latent_attention,
      "How attention reads the latent rows of latent_kv_cache: expanded (to the keys and values that training "
      "computes, bit for bit, in each step), or absorbed (queries attend to the rows themselves, which is faster on a "
      "CPU and on Hopper, and changes results within rounding)");
    v("kv_cache_dtype", kv_cache_dtype,
      "Type of keys and values in the KV cache: auto (the model's), or fp8 (e4m3 with a scale for each token and key "
      "head), which takes half of bf16's memory and changes results within FP8's rounding");
  }
};

// The source of the tokens that are proposed to follow a sequence.
enum class SpeculativeMethod : std::uint8_t {
  kNgram,  // what followed its last tokens before (engine/ngram_draft.h)
  kMtp,    // the model's layer for multi-token prediction, in the step that draws the token before: one token
};
template <>
inline constexpr EnumTable kEnumTable<SpeculativeMethod>{.names = "ngram|mtp"};

inline constexpr const char* kSpeculativeTokensHelp =
    "Tokens that are proposed for a completion, and checked in one step; 0: none";
inline constexpr const char* kSpeculativeMethodHelp =
    "What proposes num_speculative_tokens: ngram (what the completion has repeated so far), or mtp (one token by the "
    "layer for multi-token prediction of a deepseek_v3 checkpoint)";

struct EngineOptions {
  std::int64_t max_model_len = 1024;    // tokens of prompt and completion together
  std::int64_t max_num_seqs = 64;       // requests that run concurrently
  std::int64_t max_batch_tokens = 512;  // tokens of one step; longer prompts are prefilled in chunks of at most this
  std::int64_t block_size = 32;         // tokens per KV-cache block
  std::int64_t num_blocks = 0;          // KV-cache blocks; 0: enough for max_num_seqs requests of max_model_len
  bool adjust_logits = false;           // requests may have SamplingParams::adjusts_logits()
  std::int64_t max_logprobs = 0;        // largest SamplingParams::logprobs that requests may have
  // Tokens of prompts whose log-probabilities one step computes; 0: requests may not have
  // SamplingParams::prompt_logprobs. Needs adjust_logits.
  std::int64_t max_prompt_samples = 0;
  // Tokens that are proposed for a request and checked in one step; 0: none. Changes no bit of a result.
  std::int64_t num_speculative_tokens = 0;
  SpeculativeMethod speculative_method = SpeculativeMethod::kNgram;
  CacheOptions cache = {};
  std::int64_t adapter_slots = 0;  // slots of an AdapterSlots model; 0: another model
  // Requests share the KV-cache blocks of equal beginnings, which are computed once and kept until their memory is
  // needed (engine/prefix_cache.h). Changes no bit of a result.
  bool enable_prefix_caching = true;
  // Launch a step before the tokens of the step before have been read. A request that ends then computes a token in
  // vain. Unset: on a GPU, where the host would otherwise wait, unless tokens are proposed: what is proposed depends on
  // the tokens before.
  std::optional<bool> launch_ahead = std::nullopt;

  [[nodiscard]] bool drafts_by_prediction() const {
    return num_speculative_tokens > 0 && speculative_method == SpeculativeMethod::kMtp;
  }
};

// Throws Error if the options do not suit the model: a latent KV cache needs latent attention, drafts by multi-token
// prediction the layer for it.
void check_model(const EngineOptions& options, const Model& model);
// Checks the options and fills in num_blocks. Throws Error if a value is not positive, if the blocks cannot hold one
// request of max_model_len, or if options exclude each other.
[[nodiscard]] EngineOptions resolved(EngineOptions options);
// The same, except for lengths.
void check_cache_and_drafts(const EngineOptions& options, const Model& model);
// Makes the layer for multi-token prediction part of the model, before its weights are loaded, if the options need it.
// Throws Error as check_cache_and_drafts(), and if the method and the number of tokens exclude each other or
// config.json has no such layer.
void prepare_model(Model& model, const EngineOptions& options);
// Most tokens that a request may name in logit_bias, allowed_token_ids and banned_token_ids together.
inline constexpr std::int64_t kMaxListedTokens = 1024;

// Most rows of a step from which tokens are drawn: the next token of each request and those that may follow the
// proposed ones, and tokens of prompts.
[[nodiscard]] std::int64_t max_samples(const EngineOptions& options);
// The layout of the KV cache for resolved options.
[[nodiscard]] KvLayout kv_layout(const EngineOptions& options);

// The requests that an engine is to serve, as far as they are known in advance.
struct EngineWorkload {
  std::int64_t max_model_len = 0;       // tokens of the longest prompt and its completion
  std::int64_t max_num_seqs = 64;       // requests that run concurrently
  std::int64_t max_batch_tokens = 512;  // tokens of one step, or more if the requests need it
  std::int64_t full_length = 0;         // requests of max_model_len that the KV cache holds; 0: max_num_seqs of them
  bool adjust_logits = false;           // requests may have SamplingParams::adjusts_logits()
  std::int64_t num_speculative_tokens = 0;
  SpeculativeMethod speculative_method = SpeculativeMethod::kNgram;
  CacheOptions cache = {};
};
// Returns resolved options of an engine for such requests. A step has room for one token of each running request.
[[nodiscard]] EngineOptions engine_options(const EngineWorkload& demand);

// Tokens of prompts whose log-probabilities a step computes, where requests may ask for them; each takes a row of
// logits.
inline constexpr std::int64_t kPromptSamples = 256;
// Most tokens of prompt and answer together in an evaluation, if the model has that many positions.
inline constexpr std::int64_t kLongestAnswer = 32768;
// Returns `given`, the max_model_len set by the user, or if it is 0 (unset) all positions of the model up to `most`.
[[nodiscard]] std::int64_t model_len(const ModelShape& shape, std::int64_t given, std::int64_t most);

}  // namespace hone

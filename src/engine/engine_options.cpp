#include "engine/engine_options.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace hone {

EngineOptions resolved(EngineOptions options) {
  const auto positive = [](std::string_view name, std::int64_t value) {
    if (value <= 0) throw Error(name, text_of("is ", value, ", expected at least 1"));
  };
  positive("max_model_len", options.max_model_len);
  positive("max_num_seqs", options.max_num_seqs);
  positive("max_batch_tokens", options.max_batch_tokens);
  positive("block_size", options.block_size);
  const auto not_negative = [](std::string_view name, std::int64_t value) {
    if (value < 0) throw Error(name, text_of("is ", value, ", expected at least 0"));
  };
  not_negative("max_prompt_samples", options.max_prompt_samples);
  not_negative("num_speculative_tokens", options.num_speculative_tokens);
  if (options.num_speculative_tokens > 0 && options.launch_ahead.value_or(false)) {
    throw Error("num_speculative_tokens", "needs the tokens of a step before the next one is launched",
                "unset launch_ahead");
  }
  const std::int64_t per_sequence = (options.max_model_len + options.block_size - 1) / options.block_size;
  if (options.num_blocks == 0) options.num_blocks = per_sequence * options.max_num_seqs;
  if (options.num_blocks < per_sequence) {
    throw Error("num_blocks",
                text_of(options.num_blocks, " blocks of ", options.block_size,
                        " tokens are too few for one request of max_model_len ", options.max_model_len),
                text_of("at least ", per_sequence));
  }
  return options;
}

std::int64_t max_samples(const EngineOptions& options) {
  return options.max_num_seqs * (1 + options.num_speculative_tokens) + options.max_prompt_samples;
}

KvLayout kv_layout(const EngineOptions& options) {
  return {options.num_blocks,
          options.block_size,
          (options.max_model_len + options.block_size - 1) / options.block_size,
          options.cache.latent_kv_cache,
          options.cache.kv_cache_dtype,
          options.cache.latent_attention};
}

namespace {

void check_absorbed(const EngineOptions& options, const Model& model) {
  if (!options.cache.latent_kv_cache)
    throw Error("latent_attention", "is absorbed, but latent_kv_cache is false", "--latent_kv_cache true");
  const auto in_fp8 = [](const WeightSpec& spec) { return spec.dtype == DType::kU8; };
  if (std::ranges::any_of(model.weights(), in_fp8))
    throw Error("latent_attention",
                "is absorbed, but the weights are in FP8 (quantization), which it cannot multiply by",
                "leave one of them out");
}

}  // namespace

void check_cache_and_drafts(const EngineOptions& options, const Model& model) {
  if (options.cache.latent_attention == LatentForm::kAbsorbed) check_absorbed(options, model);
  if (options.drafts_by_prediction() && options.adapter_slots > 0) {
    throw Error("speculative_method",
                text_of("is mtp, which does not work with adapters by name (", options.adapter_slots, " slots)"),
                "set it to ngram");
  }
  if (options.cache.latent_kv_cache && options.adapter_slots > 0) {
    throw Error(
        "latent_kv_cache",
        text_of("is true, but adapters by name (", options.adapter_slots, " slots) may change the keys of a token"),
        "leave it out, or serve without adapters");
  }
  if (options.cache.latent_kv_cache && options.cache.kv_cache_dtype == KvCacheDtype::kFp8)
    throw Error("kv_cache_dtype", "is fp8, but latent_kv_cache keeps latent rows, which have no FP8 form",
                "leave one of them out");
  if (options.cache.latent_kv_cache && model.shape().latent_width == 0)
    throw Error("latent_kv_cache", "is true, but this model has no latent attention", "leave it out");
  HONE_ASSERT(!options.drafts_by_prediction() || model.predicts_further(),
              "the model was made without its layer for multi-token prediction");
}

namespace {

// Makes the layer that proposes tokens part of the model.
void keep_predictions(Model& model, const EngineOptions& options) {
  if (options.num_speculative_tokens != 1) {
    throw Error("num_speculative_tokens",
                text_of("is ", options.num_speculative_tokens, ", but speculative_method mtp proposes one token"),
                "set it to 1");
  }
  if (!model.keep_predictions()) {
    throw Error("speculative_method",
                "is mtp, but config.json of this model describes no layer for multi-token prediction, or several",
                "set it to ngram");
  }
}

}  // namespace

void check_model(const EngineOptions& options, const Model& model) {
  check_positions(model.shape(), options.max_model_len, "max_model_len");
  check_cache_and_drafts(options, model);
}

void prepare_model(Model& model, const EngineOptions& options) {
  if (options.speculative_method == SpeculativeMethod::kMtp) keep_predictions(model, options);
  check_cache_and_drafts(options, model);
}

EngineOptions engine_options(const EngineWorkload& demand) {
  EngineOptions options;
  options.max_model_len = demand.max_model_len;
  options.max_num_seqs = demand.max_num_seqs;
  options.num_speculative_tokens = demand.num_speculative_tokens;
  options.speculative_method = demand.speculative_method;
  options.max_batch_tokens =
      std::max(demand.max_batch_tokens, demand.max_num_seqs * (1 + demand.num_speculative_tokens));
  options.adjust_logits = demand.adjust_logits;
  options.cache = demand.cache;
  if (demand.full_length > 0) {
    const std::int64_t pages = (options.max_model_len + options.block_size - 1) / options.block_size;
    options.num_blocks = std::min(options.max_num_seqs, demand.full_length) * pages;
  }
  return resolved(options);
}

std::int64_t model_len(const ModelShape& shape, std::int64_t given, std::int64_t most) {
  return given > 0 ? given : std::min(shape.max_position_embeddings, most);
}

}  // namespace hone

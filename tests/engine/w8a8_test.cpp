// Generation with activations and weights in FP8 (quantization: w8a8_fp8): tokens that depend on the request alone, and
// the log-probabilities of a trainer's forward pass with fp8: true.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/compiler.h"
#include "core/json_value.h"
#include "core/random.h"
#include "engine/engine.h"
#include "model/adapter_slots.h"
#include "model/fp8_model.h"
#include "model/loaded_model.h"
#include "model/tensor_parallel_model.h"
#include "support/device.h"
#include "support/error_text.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/fp8_options.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

// Layers of multiples of 128 but for those of key and value heads that `sizes` makes odd.
std::unique_ptr<Model> served_model(std::string_view sizes) {
  return family_registry().create(parse_json(
      text_of(R"({"vocab_size": 150, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": false, "initializer_range": 0.09, )",
              sizes, "}"),
      "the test's config.json"));
}

constexpr std::string_view kServedDense =
    R"("model_type": "qwen2", "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2)";
constexpr std::string_view kServedMixture =
    R"("model_type": "qwen3_moe", "hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 64,
       "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": true, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32)";
constexpr std::string_view kServedLatent =
    R"("model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 384, "moe_intermediate_size": 128,
       "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
       "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
       "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
       "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true)";

struct Served {
  std::unique_ptr<Model> model;
  TensorStore weights;
};

// Weights in bf16 in a folder, as a trainer has them or quantized while they are loaded.
class ServedFolder {
 public:
  explicit ServedFolder(std::string_view sizes) : sizes_(sizes) {
    const std::unique_ptr<Model> model = served_model(sizes);
    const TensorStore weights = random_weights(*model, 4, DType::kBf16, test_device());
    save_model(folder_.path(), *model, weights, nullptr);
  }
  [[nodiscard]] Served load(bool quantized, std::int64_t slots = 0) const {
    std::unique_ptr<Model> model = served_model(sizes_);
    if (slots > 0) model = std::make_unique<AdapterSlots>(std::move(model), slots, 4);
    if (quantized) model = quantized_model(std::move(model), Quantization::kW8a8Fp8, test_device());
    TensorStore weights = load_weights(*model, ModelDirectory(folder_.path()), DType::kBf16, test_device());
    return {std::move(model), std::move(weights)};
  }

 private:
  std::string sizes_;
  TemporaryDirectory folder_;
};

std::vector<Request> served_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(7, "w8a8 requests");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  const auto token = [&] { return static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))); };
  std::vector<TokenId> beginning(20);
  std::ranges::generate(beginning, token);
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    if (i % 2 == 0) request.prompt = beginning;
    for (std::uint64_t t = 1 + random.below(at++, 30); t > 0; --t) request.prompt.push_back(token());
    request.sampling.temperature = i % 3 == 0 ? 0 : 1;
    request.sampling.max_tokens = 4 + i % 20;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Completion> complete_served(const Served& served, std::span<const Request> requests,
                                        const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(served.model->shape().vocab_size);
  Engine engine(*served.model, tokenizer, served.weights, std::make_shared<Arena>(test_device()), options);
  return engine.generate(requests);
}

void expect_same_completions(std::span<const Completion> actual, std::span<const Completion> expected,
                             std::string_view which) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(actual[i].logps, expected[i].logps) << which << ", request " << i;
  }
}

// Alone, together, in chunks, with and without the prefix cache, and with proposed tokens.
void expect_served_alone(const Served& served, const std::string& which, const CacheOptions& cache = {}) {
  const std::vector<Request> requests = served_requests(17, served.model->shape().vocab_size);
  const EngineOptions wide{.max_model_len = 96, .max_num_seqs = 17, .max_batch_tokens = 600, .cache = cache};
  const std::vector<Completion> expected = complete_served(served, requests, wide);
  EngineOptions chunked{.max_model_len = 96, .max_num_seqs = 5, .max_batch_tokens = 7, .block_size = 8, .cache = cache};
  for (const bool prefix : {true, false}) {
    chunked.enable_prefix_caching = prefix;
    expect_same_completions(complete_served(served, requests, chunked), expected, which + " in chunks");
  }
  for (std::size_t i = 0; i < 6; ++i) {
    const EngineOptions alone{.max_model_len = 96, .max_num_seqs = 1, .cache = cache};
    expect_same_completions(complete_served(served, {&requests[i], 1}, alone), {&expected[i], 1}, which + " alone");
  }
  const EngineOptions proposed{
      .max_model_len = 96, .max_num_seqs = 17, .max_batch_tokens = 96, .num_speculative_tokens = 4, .cache = cache};
  expect_same_completions(complete_served(served, requests, proposed), expected, which + " with proposed tokens");
}

TEST(W8a8, TokensDependOnTheRequestAlone) {
  for (const std::string_view sizes : {kServedDense, kServedMixture, kServedLatent}) {
    const std::string which(sizes.substr(15, 10));
    expect_served_alone(ServedFolder(sizes).load(true), which);
  }
  expect_served_alone(ServedFolder(kServedLatent).load(true), "latent rows", {.latent_kv_cache = true});
  expect_served_alone(ServedFolder(kServedDense).load(true), "FP8 pages", {.kv_cache_dtype = KvCacheDtype::kFp8});
}

// Log-probabilities of completions in the forward pass with which a trainer in FP8 evaluates.
std::vector<float> trained_logps(const Served& trained, std::span<const Request> requests,
                                 std::span<const Completion> completions, bool fp8) {
  std::vector<std::vector<TokenId>> documents;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    documents.push_back(requests[i].prompt);
    documents.back().insert(documents.back().end(), completions[i].tokens.begin(), completions[i].tokens.end());
  }
  HostBatch batch = batch_of(documents);
  const Fp8Options options{.fp8 = fp8, .fp8_weight_quant = {}, .fp8_activation_quant = {}};
  LossTrace trace;
  trace_log_probabilities(trace, *trained.model,
                          {fp8_capacity(options, batch.token_count(), 1), batch.document_count()}, {.temperature = 1});
  trace.program.output("logp", trace.logp);
  const Compiler compiler(
      {.dtype = DType::kBf16, .fp8_weights = fp8_weights_of(options, *trained.model, DType::kBf16, false)});
  Executable executable(compiler.inference(std::move(trace.program)), std::make_shared<Arena>(test_device()),
                        {.weights = &trained.weights});
  feed(executable, batch);
  executable.set<std::int32_t>("targets", batch.targets);
  executable.run();
  std::vector<float> logps(batch.tokens.size());
  executable.get<float>("logp", logps);
  std::vector<float> of_completions;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto row = batch.cu_seqlens[i] + static_cast<std::ptrdiff_t>(requests[i].prompt.size()) - 1;
    const auto from = logps.begin() + row;
    of_completions.insert(of_completions.end(), from, from + static_cast<std::ptrdiff_t>(completions[i].tokens.size()));
  }
  return of_completions;
}

// Weights in bf16 get the scales that training computes. On a GPU training has the products of cuBLASLt. Experts, which
// generation multiplies in bf16, are absent.
TEST(W8a8, HasTheLogProbabilitiesOfTrainingInFp8) {
  const ServedFolder folder(kServedDense);
  const Served served = folder.load(true);
  const Served trained = folder.load(false);
  std::vector<Request> requests = served_requests(9, served.model->shape().vocab_size);
  for (Request& request : requests) request.sampling.temperature = 1;
  const std::vector<Completion> completions =
      complete_served(served, requests, {.max_model_len = 96, .max_num_seqs = 4, .max_batch_tokens = 24});
  std::vector<float> drawn;
  for (const Completion& each : completions) drawn.insert(drawn.end(), each.logps.begin(), each.logps.end());
  EXPECT_EQ(drawn, trained_logps(trained, requests, completions, true));
  EXPECT_NE(drawn, trained_logps(trained, requests, completions, false));
}

TEST(W8a8, TakesAdaptersBySlot) {
  const Served served = ServedFolder(kServedDense).load(true, 2);
  Served filled{nullptr, served.weights.view()};
  for (const NamedType& tensor : served.weights.tensors()) {
    if (!tensor.name.ends_with(".slots_A") && !tensor.name.ends_with(".slots_B")) continue;
    const RandomStream random(3, tensor.name);
    std::vector<BFloat16> values(static_cast<std::size_t>(tensor.type.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = BFloat16(0.1F * random.normal(i));
    filled.weights.upload(tensor.name, std::as_bytes(std::span(values)));
  }
  std::vector<Request> requests = served_requests(9, served.model->shape().vocab_size);
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].adapter = {static_cast<std::int64_t>(i % 3) - 1, static_cast<std::int64_t>(i % 3)};
  EngineOptions options{.max_model_len = 96, .max_num_seqs = 9, .max_batch_tokens = 64, .adapter_slots = 2};
  const std::vector<Completion> expected = complete_served(served, requests, options);
  options.max_num_seqs = 2;
  options.max_batch_tokens = 9;
  expect_same_completions(complete_served(served, requests, options), expected, "adapters by slot");
}

TEST(W8a8, LayersOfOtherDimensionsStayInBf16) {
  const ServedFolder folder(R"("model_type": "qwen2", "hidden_size": 128, "intermediate_size": 256,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2)");
  testing::internal::CaptureStderr();
  const Served served = folder.load(true);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("w8a8_fp8: 1 of 4 linear layers stay in bfloat16"));
  for (const WeightSpec& spec : served.model->weights()) {
    EXPECT_EQ(is_fp8_block(spec), spec.by_e4m3) << spec.name;
    const bool quantized = spec.kind == WeightKind::linear && !spec.name.ends_with("qkv");
    EXPECT_EQ(spec.by_e4m3, quantized) << spec.name;
  }
  expect_served_alone(served, "some layers");
}

TEST(W8a8, RefusesWhatItCannotMultiply) {
  const auto refusal = [](std::unique_ptr<Model> model) {
    return error_text([&] { (void)quantized_model(std::move(model), Quantization::kW8a8Fp8, test_device()); });
  };
  EXPECT_EQ(refusal(served_model(R"("model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96,
                                "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2)")),
            "quantization: is w8a8_fp8, but none of the 4 linear layers has dimensions that are multiples of 128 "
            "(--quantization fp8 or none)");
  EXPECT_EQ(refusal(std::make_unique<TensorParallelModel>(served_model(kServedDense), 0, 2)),
            "quantization: is w8a8_fp8, which does not work with a model that is divided over processes "
            "(--quantization fp8 or none, or leave out tensor_parallel_size)");
}

}  // namespace
}  // namespace hone::test

// Training with products in FP8: it learns as bf16 does, and repeats its bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/random.h"
#include "model/registry.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "support/device.h"
#include "support/error_text.h"
#include "support/models.h"
#include "train/fp8_options.h"
#include "train/language_programs.h"
#include "train/loss_program.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/setup.h"

namespace hone::test {
namespace {

constexpr std::int64_t kFp8Rows = 256;  // capacity in tokens

std::unique_ptr<Model> fp8_model(std::int64_t hidden, std::int64_t intermediate) {
  return family_registry().create(parse_json(
      text_of(R"({"model_type": "qwen2", "vocab_size": 64, "hidden_size": )", hidden, R"(, "intermediate_size": )",
              intermediate, R"(, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true})"),
      "the test's config.json"));
}

// A mixture whose experts have matrices of 256 x 128 and 128 x 128.
std::unique_ptr<Model> fp8_mixture(std::int64_t inner = 128) {
  return family_registry().create(parse_json(
      text_of(R"({"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 128, "intermediate_size": 128,
              "moe_intermediate_size": )",
              inner, R"(, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": true, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 64,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true})"),
      "the test's config.json"));
}

// New documents of a small grammar for each step, on which the loss falls but stays well above 0.
HostBatch grammar_documents(std::uint64_t step) {
  const RandomStream random(3, "grammar", step);
  std::vector<std::vector<TokenId>> texts(8);
  std::uint64_t at = 0;
  for (std::vector<TokenId>& text : texts) {
    text.push_back(static_cast<TokenId>(random.below(at++, 64)));
    for (int i = 1; i < 24; ++i) {
      const auto last = static_cast<std::uint64_t>(text.back());
      text.push_back(static_cast<TokenId>((last * 5 + random.below(at++, 4)) % 64));
    }
  }
  return batch_of(texts);
}

struct Fp8Run {
  std::vector<double> losses;
  std::vector<std::byte> weights;  // after the last step
  std::size_t arena = 0;
  std::size_t quantizations = 0;  // of weights, in the training program
  std::size_t grouped = 0;        // products of experts in FP8 there
  std::size_t held = 0;           // weights that are quantized before the micro-batches of a step
};

struct Fp8Settings {
  bool fp8 = true;
  Recompute recompute = Recompute::kNone;
  std::size_t budget = 0;  // bytes
  std::int64_t rows = kFp8Rows;
  std::uint64_t steps = 6;
  bool holds = false;
  std::uint64_t micro_batches = 1;
  bool mixture = false;
};

Fp8Run train_fp8(const Fp8Settings& settings) {
  register_operations();
  Device& device = test_device();
  const std::unique_ptr<Model> model = settings.mixture ? fp8_mixture() : fp8_model(128, 256);
  TensorStore weights = random_weights(*model, 1, DType::kBf16, device);
  Workspace workspace(device.kind());
  workspace.add_weights(kWeightStore, weights.tensors());
  add_update(workspace, *model, DType::kBf16, {});
  workspace.add(
      kTrainingProgram,
      trace_training(*model,
                     {.capacity = {settings.rows, 8},
                      .compile = {.dtype = DType::kBf16,
                                  .device = device.kind(),
                                  .recompute = settings.recompute,
                                  .activation_budget = settings.budget,
                                  .fp8_weights = fp8_weights_of({.fp8 = settings.fp8}, *model, DType::kBf16, false),
                                  .holds_fp8_weights = settings.holds}}),
      training_use());
  add_quantization(workspace, training_use());
  workspace.provide(kWeightStore, weights.view());
  workspace.allocate(device);
  Optimizer optimizer(workspace, *model, {});
  Executable& executable = workspace.executable(kTrainingProgram);
  Fp8Run run;
  run.arena = executable.plan().arena;
  const auto count = [&](const auto& counts) {
    const std::vector<Node>& nodes = executable.program().nodes();
    return static_cast<std::size_t>(
        std::ranges::count_if(nodes, [&](const Node& node) { return counts(node.op->name()); }));
  };
  run.quantizations = count([](std::string_view op) { return op == "quantize_weight"; });
  run.grouped = count([](std::string_view op) { return op.starts_with("scaled_grouped_linear"); });
  Executable* const quantization =
      workspace.has_program(kQuantizationProgram) ? &workspace.executable(kQuantizationProgram) : nullptr;
  if (quantization != nullptr) run.held = quantization->program().nodes().size();
  for (std::uint64_t step = 0; step < settings.steps; ++step) {
    if (quantization != nullptr) quantization->run();
    for (std::uint64_t i = 0; i < settings.micro_batches; ++i) {
      const HostBatch batch = grammar_documents(step * settings.micro_batches + i);
      run.losses.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
    }
    optimizer.update(1e-3, 1.0);
  }
  for (const NamedType& tensor : weights.tensors()) {
    const std::vector<std::byte> bytes = weights.download(tensor.name);
    run.weights.insert(run.weights.end(), bytes.begin(), bytes.end());
  }
  return run;
}

TEST(Fp8Training, RepeatsItsBits) {
  const Fp8Run once = train_fp8({});
  const Fp8Run again = train_fp8({});
  EXPECT_EQ(once.losses, again.losses);
  EXPECT_EQ(once.weights, again.weights);
  EXPECT_NE(once.losses, train_fp8({.fp8 = false}).losses);
}

TEST(Fp8Training, RecomputationChangesMemoryAndNoBit) {
  const Fp8Run none = train_fp8({});
  const Fp8Run layers = train_fp8({.recompute = Recompute::kLayers});
  EXPECT_EQ(none.losses, layers.losses);
  EXPECT_EQ(none.weights, layers.weights);
  EXPECT_LT(layers.arena, none.arena);
}

// Memory that is there keeps the transposed copies of the weights.
TEST(Fp8Training, KeptWeightsChangeMemoryAndNoBit) {
  const Fp8Run without = train_fp8({});
  const Fp8Run with = train_fp8({.budget = std::size_t{1} << 30});
  EXPECT_EQ(without.losses, with.losses);
  EXPECT_EQ(without.weights, with.weights);
  EXPECT_LT(without.arena, with.arena);
}

// Weights that are quantized once for all micro-batches of a step.
TEST(Fp8Training, HeldWeightsChangeNoBit) {
  constexpr std::size_t kBudget = std::size_t{1} << 30;
  const Fp8Run made = train_fp8({.micro_batches = 2});
  const Fp8Run held = train_fp8({.budget = kBudget, .holds = true, .micro_batches = 2});
  EXPECT_EQ(made.losses, held.losses);
  EXPECT_EQ(made.weights, held.weights);
  EXPECT_EQ(made.quantizations, 16u);
  EXPECT_EQ(made.held, 0u);
  EXPECT_EQ(held.quantizations, 0u);
  EXPECT_EQ(held.held, 8u);
  // With less memory the forward pass makes and keeps them, and with even less each pass makes its own.
  const Fp8Run kept = train_fp8({.budget = kBudget, .micro_batches = 2});
  const Fp8Run less = train_fp8({.budget = kept.arena, .holds = true, .micro_batches = 2});
  EXPECT_EQ(less.quantizations, 8u);
  EXPECT_EQ(less.held, 0u);
  EXPECT_EQ(less.losses, made.losses);
  const Fp8Run tight = train_fp8({.budget = made.arena, .holds = true, .micro_batches = 2});
  EXPECT_EQ(tight.quantizations, 16u);
  EXPECT_EQ(tight.held, 0u);
  EXPECT_EQ(tight.losses, made.losses);
}

TEST(Fp8Training, HoldsWeightsOfSeveralMicroBatches) {
  register_operations();
  const std::unique_ptr<Model> model = fp8_model(128, 256);
  const auto holds = [&](std::int64_t steps, std::int64_t processes, std::int64_t zero_stage) {
    TrainingOptions options;
    options.fp8.fp8 = true;
    options.gradient_accumulation_steps = steps;
    options.num_processes = processes;
    options.zero_stage = zero_stage;
    const Workspace workspace = training_workspace(options, *model, DType::kBf16);
    return compile_options(options, *model, DType::kBf16, workspace).holds_fp8_weights;
  };
  EXPECT_FALSE(holds(1, 1, 0));
  EXPECT_TRUE(holds(2, 1, 0));
  EXPECT_TRUE(holds(2, 2, 2));
  EXPECT_FALSE(holds(2, 2, 3));
}

TEST(Fp8Training, UnusedCapacityChangesNoBit) {
  if (test_device().kind() != DeviceKind::kCpu) GTEST_SKIP() << "the order of a GPU's sums depends on the capacity";
  const Fp8Run tight = train_fp8({.rows = 192});
  const Fp8Run roomy = train_fp8({.rows = 512});
  EXPECT_EQ(tight.losses, roomy.losses);
  EXPECT_EQ(tight.weights, roomy.weights);
}

double mean_of_the_last(const std::vector<double>& losses, std::size_t count) {
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

TEST(Fp8Training, TracksBf16) {
  const Fp8Run narrow = train_fp8({.fp8 = true, .steps = 200});
  const Fp8Run wide = train_fp8({.fp8 = false, .steps = 200});
  EXPECT_LT(mean_of_the_last(wide.losses, 20), 0.6 * wide.losses.front());
  EXPECT_NEAR(mean_of_the_last(narrow.losses, 20), mean_of_the_last(wide.losses, 20),
              0.01 * mean_of_the_last(wide.losses, 20));
  EXPECT_NEAR(narrow.losses.front(), wide.losses.front(), 0.01 * wide.losses.front());
}

TEST(Fp8Training, ExpertsTrackBf16) {
  const Fp8Run narrow = train_fp8({.fp8 = true, .steps = 200, .mixture = true});
  const Fp8Run wide = train_fp8({.fp8 = false, .steps = 200, .mixture = true});
  EXPECT_EQ(narrow.grouped, 12u);  // two products of two layers, forward and two backward
  EXPECT_EQ(wide.grouped, 0u);
  EXPECT_LT(mean_of_the_last(wide.losses, 20), 0.6 * wide.losses.front());
  EXPECT_NEAR(mean_of_the_last(narrow.losses, 20), mean_of_the_last(wide.losses, 20),
              0.01 * mean_of_the_last(wide.losses, 20));
}

// Copies of the weights of experts that are made in each pass, kept, or held for all micro-batches; recomputed layers.
TEST(Fp8Training, CopiesOfExpertsChangeNoBit) {
  constexpr std::size_t kBudget = std::size_t{1} << 30;
  const Fp8Run made = train_fp8({.micro_batches = 2, .mixture = true});
  const Fp8Run again = train_fp8({.micro_batches = 2, .mixture = true});
  EXPECT_EQ(made.losses, again.losses);
  EXPECT_EQ(made.weights, again.weights);
  EXPECT_EQ(made.quantizations, 16u);
  const Fp8Run kept = train_fp8({.budget = kBudget, .micro_batches = 2, .mixture = true});
  EXPECT_EQ(kept.quantizations, 8u);
  const Fp8Run held = train_fp8({.budget = kBudget, .holds = true, .micro_batches = 2, .mixture = true});
  EXPECT_EQ(held.quantizations, 0u);
  EXPECT_EQ(held.held, 8u);
  const Fp8Run layers = train_fp8({.recompute = Recompute::kLayers, .micro_batches = 2, .mixture = true});
  EXPECT_LT(layers.arena, made.arena);
  for (const Fp8Run* run : {&kept, &held, &layers}) {
    EXPECT_EQ(run->losses, made.losses);
    EXPECT_EQ(run->weights, made.weights);
  }
}

TEST(Fp8Training, RanksOfAContextGroupHaveRowsToQuantize) {
  register_operations();
  const std::unique_ptr<Model> model = fp8_model(128, 256);
  for (const std::int64_t ranks : {1, 2, 3, 5, 8, 16}) {
    SCOPED_TRACE(ranks);
    TrainingOptions options;
    options.fp8.fp8 = true;
    options.device = DeviceChoice::kCpu;
    options.num_processes = options.context_parallel_size = ranks;
    const LanguageSizes sizes{.model = model.get(),
                              .dtype = DType::kBf16,
                              .steps = {.batch = {100, 2}, .longest = {50, 1}, .steps = {{{50, 1}, {50, 1}}}}};
    for (const std::int64_t capacity : training_shape(sizes, options).capacities) {
      EXPECT_EQ(capacity, ranks == 3 ? 384 : ranks == 5 ? 640 : ranks == 16 ? 256 : 128);
    }
    EXPECT_NO_THROW((void)trace_run(sizes, options));
  }
}

TEST(Fp8Training, RefusesWhatItCannotMultiply) {
  const auto weights_of = [](std::int64_t hidden, std::int64_t intermediate, DType dtype) {
    return fp8_weights_of({.fp8 = true}, *fp8_model(hidden, intermediate), dtype, false);
  };
  EXPECT_EQ(fp8_weights_of({}, *fp8_model(128, 256), DType::kF32, false), nullptr);
  EXPECT_EQ(weights_of(128, 256, DType::kBf16)->size(), 8u);
  EXPECT_EQ(weights_of(128, 200, DType::kBf16)->size(), 4u);  // the layers of attention only
  EXPECT_EQ(fp8_weights_of({.fp8 = true}, *fp8_mixture(), DType::kBf16, false)->size(), 8u);
  EXPECT_EQ(fp8_weights_of({.fp8 = true}, *fp8_mixture(192), DType::kBf16, false)->size(), 6u);  // no down
  EXPECT_EQ(error_text([&] { (void)weights_of(128, 256, DType::kF32); }),
            "fp8: is for weights of bfloat16, these are f32 (set torch_dtype: bfloat16, or remove fp8)");
  EXPECT_EQ(error_text([&] { (void)weights_of(96, 200, DType::kBf16); }),
            "fp8: none of the 8 linear layers has dimensions that are multiples of 128 (remove fp8)");
}

TEST(Fp8Training, ChecksItsOptions) {
  const auto error_with = [](const std::vector<std::string>& arguments) {
    return error_text([&] {
      PretrainOptions options;
      const OptionTable table(options);
      OptionInput input;
      read_option_flags(table, arguments, {}, input);
      check_fp8(options.fp8, options.tensor_parallel_size, input);
    });
  };
  EXPECT_EQ(error_with({"--use_fp8", "--fp8_weight_quant", "--fp8_activation_quant"}), "no error");
  EXPECT_EQ(error_with({"--fp8_weight_quant"}), "no error");
  EXPECT_EQ(error_with({"--fp8", "--fp8_activation_quant=false"}),
            "--fp8_activation_quant: is false, but a product in FP8 has both operands in e4m3 (remove "
            "fp8_activation_quant, or fp8)");
  EXPECT_EQ(error_with({"--fp8", "--tensor_parallel_size", "2"}),
            "--fp8: cannot be used with tensor_parallel_size 2, which divides linear layers over processes (set "
            "tensor_parallel_size: 1, or remove fp8)");
}

}  // namespace
}  // namespace hone::test

// Adapters, compared with those that PEFT made and their results (tests/fixtures/lora/make_lora.py).
#include "model/lora.h"
#include "core/json_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "engine/engine.h"
#include "model/adapter_files.h"
#include "model/transpose.h"
#include "ops/linear/linear.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

constexpr const char* kAdapters[] = {"qwen2_default",     "llama_all",       "llama_saved",      "qwen2_dora",
                                     "qwen2_pattern",     "gpt2_all",        "gpt2_tables",      "llama_tables",
                                     "qwen2_tied_tables", "qwen2_tied_head", "qwen2_tied_saved", "qwen2_biases",
                                     "qwen2_dora_biases", "gpt2_biases"};

// Returns the folder of the fixtures, or of adapters that scripts/check_peft.sh has just made.
std::filesystem::path adapters_folder() {
  const char* other = std::getenv("HONE_PEFT_ADAPTERS");
  return other != nullptr ? std::filesystem::path(other) : fixture("lora");
}

std::vector<std::string> strings_of(const Json& value) {
  if (value.is_array()) return value.get<std::vector<std::string>>();
  return value.is_string() ? std::vector<std::string>{value.get<std::string>()} : std::vector<std::string>{};
}

LoraConfig config_of(const Json& json) {
  return {.r = json.at("r").get<std::int64_t>(),
          .alpha = json.at("lora_alpha").get<double>(),
          .target_modules = strings_of(json.at("target_modules")),
          .modules_to_save = strings_of(json.at("modules_to_save")),
          .bias = json.at("bias") == "all"         ? LoraBias::kAll
                  : json.at("bias") == "lora_only" ? LoraBias::kLoraOnly
                                                   : LoraBias::kNone,
          .rslora = json.at("use_rslora").get<bool>(),
          .dora = json.at("use_dora").get<bool>(),
          .base_name = json.at("base_model_name_or_path").get<std::string>()};
}

// A base model with an adapter made by PEFT.
struct AdaptedModel {
  explicit AdaptedModel(const std::string& name, DType dtype = DType::kF32)
      : folder(adapters_folder() / name),
        reference(folder / "reference.safetensors"),
        directory(base_folder()),
        model(family_registry().create(directory.config()), config_of(read_json(folder / "adapter_config.json"))),
        weights(load_weights(model, directory, dtype, test_device())) {
    initialize_adapter(model, weights, 1);
    load_adapter(folder, model, weights);
  }

  [[nodiscard]] std::filesystem::path base_folder() const {
    return folder / read_json(folder / "adapter_config.json").at("base_model_name_or_path").get<std::string>();
  }
  // Returns the documents of the base model's reference.
  [[nodiscard]] HostBatch batch() const { return FixtureModel(base_folder().filename().string()).batch(); }

  std::filesystem::path folder;
  SafetensorsFile reference;
  ModelDirectory directory;  // folder of the base model
  LoraModel model;
  TensorStore weights;
};

// Returns the tensors that PEFT saves for an adapter, without copies of base embeddings that have an adapter.
std::vector<StoredTensor> trained_tensors(const SafetensorsFile& file) {
  std::vector<StoredTensor> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(".base_layer.weight")) tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<float> logits_of(const Model& model, const TensorStore& weights, const HostBatch& batch) {
  Program program;
  DocumentBatch documents(program, capacity_of(batch));
  WeightBinder binder(program, model.weights(), false);
  const Tensor hidden = model.forward(binder, documents);
  program.output("logits", linear(hidden, binder(model.head())));
  Executable executable(model.adapted(std::move(program), {}), std::make_shared<Arena>(test_device()),
                        {.weights = &weights});
  feed(executable, batch);
  executable.run();
  std::vector<float> logits(static_cast<std::size_t>(batch.token_count() * model.shape().vocab_size));
  executable.get<float>("logits", logits);
  return logits;
}

// Returns the gradient of a part of an adapter.
std::vector<float> gradient_of(const Optimizer& optimizer, const WeightSpec& spec, const WeightPart& part) {
  const std::vector<std::byte> bytes = optimizer.gradients().download(spec.name);
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  const std::int64_t row = optimizer.gradients().type(spec.name).row_size();
  std::vector<float> rows(values + part.row * row, values + (part.row + part.rows) * row);
  if (!part.transposed) return rows;
  std::vector<float> columns(rows.size());
  transpose(std::as_bytes(std::span(rows)), part.rows, row, sizeof(float), std::as_writable_bytes(std::span(columns)));
  return columns;
}

TEST(Lora, LogitsArePefts) {
  for (const char* name : kAdapters) {
    const AdaptedModel adapted(name);
    const HostBatch batch = adapted.batch();
    const auto expected = read_values<float>(adapted.reference.at("logits"));
    EXPECT_LE(relative_difference(logits_of(adapted.model, adapted.weights, batch), expected), 2e-5) << name;
    // The logits without the adapter differ.
    EXPECT_GE(relative_difference(logits_of(adapted.model.base(), adapted.weights, batch), expected), 1e-2) << name;
  }
}

TEST(Lora, MergedLogitsArePefts) {
  std::vector<std::string> names(std::begin(kAdapters), std::end(kAdapters));
  names.emplace_back("llama_ranks");
  for (const std::string& name : names) {
    const std::filesystem::path folder = adapters_folder() / name;
    const ModelDirectory directory(folder);
    const std::unique_ptr<Model> model = family_registry().create(directory.config());
    const TensorStore weights = load_weights(*model, directory, DType::kF32, test_device());
    const auto base = read_json(folder / "adapter_config.json").at("base_model_name_or_path").get<std::string>();
    const HostBatch batch = FixtureModel(std::filesystem::path(base).filename().string()).batch();
    const auto expected = read_values<float>(SafetensorsFile(folder / "reference.safetensors").at("logits"));
    EXPECT_LE(relative_difference(logits_of(*model, weights, batch), expected), 2e-5) << name;
  }
}

TEST(Lora, LossGradientsAndStepsArePefts) {
  for (const char* name : kAdapters) {
    AdaptedModel adapted(name);
    const HostBatch batch = adapted.batch();
    const std::vector<std::byte> frozen = adapted.weights.download("layers.0.attention.out");
    auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(adapted.model, adapted.weights, arena, {});
    Executable executable(trace_training(adapted.model, {.capacity = capacity_of(batch)}), arena,
                          {.weights = &adapted.weights, .gradients = &optimizer.gradients()});
    const auto losses = read_values<float>(adapted.reference.at("losses"));
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
      EXPECT_NEAR(sums.loss, static_cast<double>(losses[step]), 2e-4 * losses[step]) << name << " step " << step;
      std::size_t compared = 0;
      for (const WeightSpec& spec : adapted.model.weights()) {
        if (step > 0 || !spec.trainable) continue;
        for (const WeightPart& part : spec.parts) {
          const auto expected = read_values<float>(adapted.reference.at("gradient." + part.name));
          EXPECT_LE(relative_difference(gradient_of(optimizer, spec, part), expected), 1e-4) << name << part.name;
          ++compared;
        }
      }
      if (step == 0) {
        EXPECT_EQ(compared, trained_tensors(SafetensorsFile(adapted.folder / "adapter_model.safetensors")).size());
      }
      optimizer.update(1e-2, 1.0);
    }
    EXPECT_EQ(adapted.weights.download("layers.0.attention.out"), frozen) << name;
  }
}

// Loading and saving an adapter of PEFT preserves every tensor and the relevant keys of its configuration.
TEST(Lora, FilesArePefts) {
  for (const char* name : kAdapters) {
    const AdaptedModel adapted(name);
    const TemporaryDirectory folder;
    save_adapter(folder.path(), adapted.model, adapted.weights, nullptr);
    const SafetensorsFile written(folder.path() / "adapter_model.safetensors");
    const SafetensorsFile expected(adapted.folder / "adapter_model.safetensors");
    ASSERT_EQ(written.tensors().size(), trained_tensors(expected).size()) << name;
    for (const StoredTensor& tensor : trained_tensors(expected)) {
      const StoredTensor& ours = written.at(tensor.name);
      EXPECT_EQ(ours.shape, tensor.shape) << tensor.name;
      EXPECT_EQ(read_values<float>(ours), read_values<float>(tensor)) << tensor.name;
    }
    const Json ours = read_json(folder.path() / "adapter_config.json");
    const Json theirs = read_json(adapted.folder / "adapter_config.json");
    for (const char* key : {"base_model_name_or_path", "bias", "fan_in_fan_out", "lora_alpha", "modules_to_save",
                            "peft_type", "r", "task_type", "use_dora", "use_rslora"}) {
      // PEFT sets fan_in_fan_out to false for all layers after a layer that is not Conv1D.
      if (std::string_view(name) == "gpt2_tables" && std::string_view(key) == "fan_in_fan_out") continue;
      EXPECT_EQ(ours.at(key), theirs.at(key)) << name << " " << key;
    }
    if (theirs.at("target_modules").is_string()) continue;  // a regular expression; hone saves the list of modules
    std::set<std::string> wanted;                           // PEFT saves all-linear as a list of modules
    for (const std::string& module : strings_of(theirs.at("target_modules"))) {
      wanted.insert(module.substr(module.rfind('.') + 1));
    }
    const std::vector<std::string> targets = strings_of(ours.at("target_modules"));
    EXPECT_EQ(std::set<std::string>(targets.begin(), targets.end()), wanted) << name;
  }
}

// Saves adapters that hone made and trained, with their logits, for tests/fixtures/lora/check_adapter.py.
TEST(Lora, SavesForPeft) {
  const char* folder = std::getenv("HONE_SAVE_ADAPTERS_TO");
  if (folder == nullptr) GTEST_SKIP() << "scripts/check_peft.sh says where to";
  struct Case {
    const char* name;
    const char* base;
    LoraConfig config;
  };
  const Case cases[] = {{"qwen2", "qwen2", {.r = 4, .alpha = 8}},
                        {"tables", "llama", {.r = 2, .target_modules = {"embed_tokens", "lm_head", "up_proj"}}},
                        {"tied_tables", "qwen2_tied", {.r = 2, .target_modules = {"embed_tokens", "lm_head"}}},
                        {"tied_saved",
                         "qwen2_tied",
                         {.r = 2, .target_modules = {"up_proj"}, .modules_to_save = {"lm_head", "embed_tokens"}}},
                        {"biases", "qwen2", {.r = 2, .target_modules = {"k_proj"}, .bias = LoraBias::kLoraOnly}},
                        {"all_biases", "gpt2", {.r = 2, .target_modules = {"c_fc"}, .bias = LoraBias::kAll}},
                        {"pattern", "llama", {.r = 2, .target_modules = {R"(.*\.(?:0|12)\.self.*)"}}},
                        {"llama", "llama", {.r = 5, .target_modules = {"all-linear"}, .rslora = true}},
                        {"llama_saved", "llama", {.r = 2, .modules_to_save = {"lm_head", "embed_tokens"}}},
                        {"qwen3_dora", "qwen3", {.r = 3, .target_modules = {"all-linear"}, .dora = true}},
                        {"one_layer", "qwen2", {.r = 3, .target_modules = {"model.layers.1.self_attn.k_proj"}}},
                        {"gpt2", "gpt2", {.r = 4, .target_modules = {"all-linear"}, .dora = true}}};
  for (const Case& one : cases) {
    const FixtureModel base(one.base);
    LoraConfig config = one.config;
    config.base_name = fixture("models/").string() + one.base;
    const LoraModel model(family_registry().create(base.directory.config()), config);
    TensorStore weights = load_weights(model, base.directory, DType::kF32, test_device());
    initialize_adapter(model, weights, 3);
    const HostBatch batch = base.batch();
    auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(model, weights, arena, {});
    Executable executable(trace_training(model, {.capacity = capacity_of(batch)}), arena,
                          {.weights = &weights, .gradients = &optimizer.gradients()});
    for (int step = 0; step < 8; ++step) {
      (void)run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
      optimizer.update(2e-2, 1.0);
    }
    const std::filesystem::path path = std::filesystem::path(folder) / one.name;
    save_adapter(path, model, weights, nullptr);
    const std::vector<float> logits = logits_of(model, weights, batch);
    const TensorSource source =
        tensor_source<float>("logits", {batch.token_count(), model.shape().vocab_size}, std::span<const float>(logits));
    write_safetensors(path / "logits.safetensors", {&source, 1});
  }
}

// Adapters on experts are refused, also where "all-linear" includes them; attention may have adapters.
TEST(Lora, ExpertsHaveNoAdapters) {
  const FixtureModel base("qwen3_moe_tied");
  const auto adapt = [&](const std::string& target) {
    LoraConfig config;
    config.r = 2;
    config.target_modules = {target};
    (void)LoraModel(family_registry().create(base.directory.config()), config);
  };
  EXPECT_NO_THROW(adapt("q_proj"));
  EXPECT_THROW(adapt("all-linear"), Error);
  EXPECT_THROW(adapt("down_proj"), Error);
}

// All matrices of latent attention may have adapters; the experts of a mixture are refused by name.
TEST(Lora, LatentAttentionHasAdapters) {
  for (const char* name : {"deepseek_v2", "deepseek_v3"}) {
    const FixtureModel base(name);
    const auto adapt = [&](const std::vector<std::string>& targets) {
      LoraConfig config;
      config.r = 2;
      config.target_modules = targets;
      return LoraModel(family_registry().create(base.directory.config()), config);
    };
    const std::vector<std::string> query = base.directory.config()["q_lora_rank"].is_null()
                                               ? std::vector<std::string>{"q_proj"}
                                               : std::vector<std::string>{"q_a_proj", "q_b_proj"};
    std::vector<std::string> targets{"kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
    targets.insert(targets.end(), query.begin(), query.end());
    const LoraModel model = adapt(targets);
    TensorStore weights = load_weights(model, base.directory, DType::kF32, test_device());
    initialize_adapter(model, weights, 7);
    const HostBatch batch = base.batch();
    EXPECT_LE(relative_difference(logits_of(model, weights, batch), read_values<float>(base.reference.at("logits"))),
              1e-4);
    const auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(model, weights, arena, {});
    EXPECT_EQ(optimizer.gradients().tensors().size(), 2 * 3 * targets.size());  // A and B of each matrix of 3 layers
    Executable executable(trace_training(model, {.capacity = capacity_of(batch)}), arena,
                          {.weights = &weights, .gradients = &optimizer.gradients()});
    std::vector<double> losses;
    for (int step = 0; step < 6; ++step) {
      losses.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
      optimizer.update(2e-2, 1.0);
    }
    EXPECT_LT(losses.back(), losses.front()) << name;
    EXPECT_THROW((void)adapt({"all-linear"}), Error);
    EXPECT_THROW((void)adapt({R"(model\.layers\.\d+\.mlp\.experts\.\d+\.down_proj)"}), Error);
    EXPECT_NO_THROW((void)adapt({R"(model\.layers\.\d+\.mlp\.shared_experts\.down_proj)"}));
    EXPECT_THROW((void)adapt({}), Error) << "there is no default";
  }
}

// Frozen weights have neither gradients nor optimizer states; the plan counts only those of the adapter.
TEST(Lora, OnlyAdaptersHaveGradientsAndStates) {
  const AdaptedModel adapted("qwen2_default");
  std::size_t elements = 0;
  for (const NamedType& gradient : update_store(adapted.model, DType::kBf16, {}, kGradientStore)) {
    EXPECT_TRUE(gradient.name.ends_with(".lora_A") || gradient.name.ends_with(".lora_B")) << gradient.name;
    elements += static_cast<std::size_t>(gradient.type.elements());
  }
  // Two layers of A [2 x 4, 64] and B [64 + 32 + 32, 4]; the rows of k in B are unused.
  EXPECT_EQ(elements, 2u * (8 * 64 + 128 * 4));
  EXPECT_EQ(trained_parameter_count(adapted.model), 2 * (8 * 64 + 96 * 4));
  for (const NamedType& state : update_store(adapted.model, DType::kBf16, {}, kOptimizerStore)) {
    EXPECT_TRUE(state.name == "nonfinite" || state.name.find(".lora_") != std::string::npos) << state.name;
  }
  const Program program = trace_training(adapted.model, {.capacity = {64, 4}, .compile = {.dtype = DType::kBf16}});
  std::size_t gradients = 0;
  for (const Value& value : program.values()) gradients += value.role == Role::kGradient ? 1 : 0;
  EXPECT_EQ(gradients, 4u);
}

// A new adapter of any kind leaves the logits unchanged, and its initial values do not depend on other adapters.
TEST(Lora, ANewAdapterChangesNothing) {
  const FixtureModel base("qwen2");
  const HostBatch batch = base.batch();
  const auto expected = read_values<float>(base.reference.at("logits"));
  for (const bool dora : {false, true}) {
    const LoraModel model(family_registry().create(base.directory.config()),
                          {.r = 4, .target_modules = {"all-linear"}, .modules_to_save = {"lm_head"}, .dora = dora});
    TensorStore weights = load_weights(model, base.directory, DType::kF32, test_device());
    initialize_adapter(model, weights, 7);
    EXPECT_LE(relative_difference(logits_of(model, weights, batch), expected), 1e-4);
    const auto down = weights.download("layers.1.mlp.down.lora_A");
    const auto* values = reinterpret_cast<const float*>(down.data());
    double most = 0;
    for (std::int64_t i = 0; i < 4 * 80; ++i) most = std::max(most, static_cast<double>(std::abs(values[i])));
    EXPECT_LE(most, 1 / std::sqrt(80.0));
    EXPECT_GE(most, 0.9 / std::sqrt(80.0));
  }
}

// With DoRA, PEFT applies dropout to the whole adapted term, which includes the base's magnitude change, but not to the
// output of the base layer: if everything is dropped, the base model remains.
TEST(Lora, DoraDropsBeforeItsBaseToo) {
  AdaptedModel adapted("qwen2_dora");
  LoraConfig config = adapted.model.lora();
  config.dropout = 1 - 1e-9;
  const LoraModel model(family_registry().create(adapted.directory.config()), config);
  const HostBatch batch = adapted.batch();
  const auto loss_of = [&](const Model& subject) {
    auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(subject, adapted.weights, arena, {});
    Executable executable(trace_training(subject, {.capacity = capacity_of(batch)}), arena,
                          {.weights = &adapted.weights, .gradients = &optimizer.gradients()});
    LossLaunches launches(executable, 1, 5, 0);
    launches.launch(batch, 1.0 / static_cast<double>(batch.target_tokens));
    return launches.sums().loss;
  };
  const double base = loss_of(model.base());
  EXPECT_NEAR(loss_of(model), base, 1e-4 * base);
  EXPECT_GT(std::abs(loss_of(adapted.model) - base), 1e-2 * base);
}

// Recomputation of layers in bf16 with dropout gives the same losses and weights.
TEST(Lora, RecomputationChangesNoBit) {
  const auto train = [](Recompute policy) {
    AdaptedModel adapted("qwen2_dora", DType::kBf16);
    LoraConfig config = adapted.model.lora();
    config.dropout = 0.25;
    const LoraModel model(family_registry().create(adapted.directory.config()), config);
    const HostBatch batch = adapted.batch();
    auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(model, adapted.weights, arena, {});
    Executable executable(trace_training(model, {.capacity = capacity_of(batch),
                                                 .compile = {.dtype = DType::kBf16, .recompute = policy}}),
                          arena, {.weights = &adapted.weights, .gradients = &optimizer.gradients()});
    std::vector<double> losses;
    for (std::int64_t step = 0; step < 4; ++step) {
      LossLaunches launches(executable, 1, 5, step);
      launches.launch(batch, 1.0 / static_cast<double>(batch.target_tokens));
      losses.push_back(launches.sums().loss);
      optimizer.update(1e-2, 1.0);
    }
    return std::pair(losses, adapted.weights.download("layers.0.attention.qkv.lora_B"));
  };
  const auto whole = train(Recompute::kNone);
  EXPECT_EQ(whole, train(Recompute::kLayers));
  EXPECT_NE(whole.first[0], whole.first[3]);
}

// Rollout and trainer compute the same probabilities for models with an adapter.
TEST(Lora, LogProbabilitiesAreTheTrainersBitForBit) {
  for (const char* name : {"llama_saved", "qwen2_dora", "llama_tables", "qwen2_tied_tables"}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const AdaptedModel adapted(name, dtype);
      const Tokenizer tokenizer = letter_tokenizer(adapted.model.shape().vocab_size);
      Engine engine(adapted.model, tokenizer, adapted.weights, std::make_shared<Arena>(test_device()),
                    {.max_model_len = 64, .max_num_seqs = 2});
      const Request request{{5, 9, 200, 13}, {.temperature = 1.0, .max_tokens = 24}};
      const std::vector<Completion> completions = engine.generate({&request, 1});
      std::vector<TokenId> document = request.prompt;
      document.insert(document.end(), completions[0].tokens.begin(), completions[0].tokens.end());
      const HostBatch batch = batch_of({&document, 1});
      LossTrace trace;
      trace_log_probabilities(trace, adapted.model, capacity_of(batch), {});
      trace.program.output("logp", trace.logp);
      Executable executable(Compiler({.dtype = dtype}).inference(adapted.model.adapted(std::move(trace.program), {})),
                            std::make_shared<Arena>(test_device()), {.weights = &adapted.weights});
      feed(executable, batch);
      executable.set<std::int32_t>("targets", batch.targets);
      executable.run();
      std::vector<float> logps(batch.tokens.size());
      executable.get<float>("logp", logps);
      ASSERT_FALSE(completions[0].tokens.empty());
      for (std::size_t t = 0; t < completions[0].tokens.size(); ++t) {
        ASSERT_EQ(logps[request.prompt.size() - 1 + t], completions[0].logps[t]) << name << " token " << t;
      }
    }
  }
}

std::string error_of(const LoraConfig& config, const char* base = "qwen2") {
  try {
    const LoraModel model(family_registry().create(FixtureModel(base).directory.config()), config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lora, NamesWhatDoesNotFit) {
  EXPECT_EQ(error_of({.target_modules = {"layers.1.self_attn.q_proj", "down_proj"}}), "no error");
  EXPECT_NE(error_of({.target_modules = {"q_porj"}}).find("lora_target_modules: 'q_porj' names no linear layer"),
            std::string::npos);
  EXPECT_EQ(error_of({.target_modules = {"lm_head", "embed_tokens"}}), "no error");
  EXPECT_EQ(error_of({.target_modules = {"lm_head", "embed_tokens"}}, "qwen2_tied"), "no error");
  EXPECT_EQ(error_of({.target_modules = {"lm_head"}, .modules_to_save = {"lm_head"}}, "qwen2_tied"),
            "lora_modules_to_save: 'lm_head' is one of lora_target_modules too (name it in one of them)");
  EXPECT_EQ(error_of({.target_modules = {"lm_head"}, .dora = true}),
            "use_dora: has no form for the head here (leave it out of lora_target_modules, or make it one of "
            "lora_modules_to_save)");
  EXPECT_EQ(error_of({.target_modules = {"All-Linear"}}), "no error");
  EXPECT_EQ(error_of({.target_modules = {R"(.*\.1\..*_proj)"}}), "no error");
  EXPECT_NE(error_of({.target_modules = {R"(layers\.1\..*_proj)"}})
                .find("'layers\\.1\\..*_proj' fits the whole name of no linear layer of this model (names are as "
                      "model.layers.0.self_attn.q_proj)"),
            std::string::npos);
  EXPECT_NE(error_of({.target_modules = {".*norm|.*_proj"}})
                .find("fits model.layers.0.input_layernorm, which can have no adapter"),
            std::string::npos);
  EXPECT_NE(error_of({.target_modules = {"(q|v_proj"}}).find("missing closing parenthesis at character 9"),
            std::string::npos);
  EXPECT_NE(error_of({.modules_to_save = {"lm_haed"}}).find("lora_modules_to_save: 'lm_haed' names no module"),
            std::string::npos);
  EXPECT_EQ(error_of({.modules_to_save = {"embed_tokens"}}, "qwen2_tied"), "no error");
  EXPECT_EQ(error_of({.modules_to_save = {"o_proj"}}), "no error");
  EXPECT_NE(error_of({.modules_to_save = {"c_proj"}}, "gpt2").find("is a linear layer"), std::string::npos);
  EXPECT_NE(error_of({.target_modules = {"o_proj"}, .modules_to_save = {"o_proj"}}).find("lora_target_modules too"),
            std::string::npos);
}

std::string load_error(const std::filesystem::path& folder) {
  try {
    const ModelDirectory directory(folder);
    const std::unique_ptr<Model> model = family_registry().create(directory.config());
    (void)load_weights(*model, directory, DType::kF32, test_device());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lora, BrokenFoldersAreNamed) {
  const TemporaryDirectory copy;
  const std::filesystem::path folder = copy.path() / "adapter";
  const auto fresh = [&] {
    std::filesystem::remove_all(folder);
    std::filesystem::copy(fixture("lora/qwen2_default"), folder);
    Json config = read_json(folder / "adapter_config.json");
    config["base_model_name_or_path"] = fixture("models/qwen2").string();
    return config;
  };
  const auto error_with = [&](const char* key, const Json& value) {
    Json config = fresh();
    config[key] = value;
    write_json(folder / "adapter_config.json", config);
    return load_error(folder);
  };
  EXPECT_EQ(error_with("r", 4), "no error");
  EXPECT_NE(error_with("base_model_name_or_path", "nowhere/at/all").find("base_model_name_or_path"), std::string::npos);
  EXPECT_NE(error_with("base_model_name_or_path", nullptr).find("is not set"), std::string::npos);
  EXPECT_NE(error_with("base_model_name_or_path", folder.string()).find("its own base"), std::string::npos);
  EXPECT_NE(error_with("base_model_name_or_path", fixture("models/gpt2").string()).find("belongs to no weight"),
            std::string::npos);
  EXPECT_NE(error_with("base_model_name_or_path", fixture("models/qwen3").string()).find("requires"),
            std::string::npos);
  EXPECT_NE(error_with("peft_type", "IA3").find("peft_type 'IA3' is not known"), std::string::npos);
}

}  // namespace
}  // namespace hone::test

// Tests of experts that are divided next to other parts of a model or a batch, on CPUs: gradients and losses of the
// ranks next to those of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>

#include "core/json_value.h"
#include "data/context_share.h"
#include "job/job_fixture.h"
#include "job/mesh_threads.h"
#include "job/mixtures.h"
#include "model/expert_parallel_model.h"
#include "model/tensor_parallel_model.h"
#include "model/weight_layout.h"
#include "ops/registry.h"

#include "train/launch.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Sizes of groups, and the ranks of a job.
struct Product {
  int ranks = 1;
  JobShape shape;
  bool rows = false;  // sequence parallelism in tensor groups

  [[nodiscard]] std::string name() const {
    return text_of(ranks, " ranks: tensor ", shape.tensor_size, rows ? " by rows" : "", ", expert ", shape.expert_size,
                   ", context ", shape.context_size);
  }
  [[nodiscard]] TrainingOptions options(int rank) const {
    TrainingOptions options;
    options.num_processes = ranks;
    options.job_rank = rank;
    options.tensor_parallel_size = shape.tensor_size;
    options.expert_parallel_size = shape.expert_size;
    options.context_parallel_size = shape.context_size;
    options.sequence_parallel = rows;
    return options;
  }
  [[nodiscard]] Flags flags() const {
    return {"--num_processes",         std::to_string(ranks),
            "--tensor_parallel_size",  std::to_string(shape.tensor_size),
            "--expert_parallel_size",  std::to_string(shape.expert_size),
            "--context_parallel_size", std::to_string(shape.context_size),
            "--sequence_parallel",     rows ? "true" : "false"};
  }
};

const std::vector<Product>& products() {
  static const std::vector<Product> all{{2, {.expert_size = 2, .context_size = 2}},
                                        {4, {.expert_size = 4, .context_size = 2}},
                                        {8, {.expert_size = 4, .context_size = 4}},
                                        {2, {.tensor_size = 2}},
                                        {4, {.tensor_size = 4}},
                                        {4, {.tensor_size = 2, .context_size = 2}},
                                        {4, {.tensor_size = 2, .expert_size = 2}},
                                        {8, {.tensor_size = 2, .expert_size = 2}},
                                        {8, {.tensor_size = 2, .expert_size = 2, .context_size = 4}},
                                        {2, {.tensor_size = 2}, true},
                                        {4, {.tensor_size = 4}, true},
                                        {4, {.tensor_size = 2}, true},
                                        {4, {.tensor_size = 2, .context_size = 2}, true},
                                        {8, {.tensor_size = 2, .expert_size = 2}, true},
                                        {8, {.tensor_size = 2, .expert_size = 2, .context_size = 4}, true}};
  return all;
}

// Some of them, in which ranks have the same weights.
const std::vector<Product>& products_of_data() {
  static const std::vector<Product> some{{4, {.expert_size = 2, .context_size = 2}},
                                         {4, {.tensor_size = 2, .context_size = 2}},
                                         {4, {.tensor_size = 2, .expert_size = 2}},
                                         {8, {.tensor_size = 2, .expert_size = 2}},
                                         {4, {.tensor_size = 2}, true},
                                         {8, {.tensor_size = 2, .expert_size = 2}, true}};
  return some;
}

// mixtures(), one with a vocabulary that no number of ranks divides, and one whose queries have no latent rows.
Configs all_mixtures() {
  Configs all = mixtures();
  Json odd = parse_json(all.at("deepseek_v3"), "deepseek_v3");
  odd["vocab_size"] = 309;
  all["deepseek_v3 odd"] = odd.dump();
  all["deepseek_v2"] = R"({"model_type": "deepseek_v2", "num_hidden_layers": 2, "n_routed_experts": 8,
      "n_shared_experts": 2, "first_k_dense_replace": 0, "moe_intermediate_size": 16, "intermediate_size": 40,
      "routed_scaling_factor": 1.5, "kv_lora_rank": 20, "q_lora_rank": null, "qk_nope_head_dim": 16,
      "qk_rope_head_dim": 8, "v_head_dim": 12, "head_dim": 8, "vocab_size": 308, "hidden_size": 32,
      "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.05,
      "tie_word_embeddings": true, "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts_per_tok": 3})";
  return all;
}

// The balancing losses of all families.
std::unique_ptr<Model> balanced_model(const std::string& family) {
  std::unique_ptr<Model> model = model_of(all_mixtures().at(family));
  ModelTraining training;
  if (family.starts_with("deepseek")) {
    training.aux_loss_alpha = 0.05;
    if (family.starts_with("deepseek_v3")) training.mtp_loss_weight = 0.3;
  } else {
    training.output_router_logits = true;
    training.router_aux_loss_coef = 0.05;
  }
  model->prepare_training(training);
  return model;
}

// Documents of a reader; those of different readers differ in number and length.
HostBatch batch_of_reader(int reader) {
  std::vector<int> lengths{150, 3, 40};
  for (int d = 0; d <= reader; ++d) lengths.push_back(17 + 5 * d);
  return batch_of(random_documents(static_cast<std::uint64_t>(reader) + 3, lengths, 308));
}

RankLosses run_rank(const Model& model, std::span<const HostBatch> batches, int context_size, Recompute recompute) {
  LossProgramOptions options{.capacity = {300, 12}};
  options.compile.recompute = recompute;
  options.context_size = context_size;
  return run_losses(trace_training(model, options), model, batches, 0.01);
}

RankLosses one_process(const std::string& family, int readers) {
  register_operations();
  std::vector<HostBatch> batches;
  for (int reader = 0; reader < readers; ++reader) batches.push_back(batch_of_reader(reader));
  return run_rank(*balanced_model(family), batches, 1, Recompute::kNone);
}

// Adds a rank's gradient of a weight to that of the whole one.
void add_part(const WeightSpec& part, const WeightSpec& whole, std::span<const float> values,
              std::vector<float>& sums) {
  std::vector<float> all(static_cast<std::size_t>(whole.shape[0] * row_elements(whole)), 0.0f);
  put_part(part, whole, sizeof(float), std::as_bytes(values), std::as_writable_bytes(std::span(all)));
  add_to(sums, all);
}

// The same by a thread for each rank of a job. Gradients are those of the whole model.
RankLosses job_of(const std::string& family, const Product& product, Recompute recompute = Recompute::kNone) {
  register_operations();
  std::vector<RankLosses> of_rank(static_cast<std::size_t>(product.ranks));
  std::vector<std::unique_ptr<Model>> models(of_rank.size());
  run_mesh(product.ranks, product.shape, [&](const Mesh& mesh) {
    const auto at = static_cast<std::size_t>(mesh.rank());
    models[at] = divided_model(product.options(mesh.rank()), balanced_model(family));
    HostBatch batch = batch_of_reader(mesh.reader());
    if (mesh.context_size() > 1) batch = context_share(batch, mesh.context_rank(), mesh.context_size());
    of_rank[at] = run_rank(*models[at], {&batch, 1}, mesh.context_size(), recompute);
  });
  RankLosses all{.sums = {0, 0, 0}, .gradients = {}};
  for (int rank = 0; rank < product.ranks; ++rank) {
    const Mesh mesh(rank, product.ranks, product.shape);
    const auto at = static_cast<std::size_t>(rank);
    const RankLosses& own = of_rank[at];
    for (std::size_t i = 0; i < all.sums.size() && mesh.tensor_rank() == 0; ++i) all.sums[i] += own.sums[i];
    const std::vector<WeightSpec>& parts = models[at]->weights();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      // The ranks of a tensor group have the same gradients of what they have whole.
      if (mesh.tensor_rank() > 0 && !is_divided(parts[i])) {
        const auto first = static_cast<std::size_t>(rank - mesh.tensor_rank());
        EXPECT_EQ(own.gradients.at(parts[i].name), of_rank[first].gradients.at(parts[i].name)) << parts[i].name;
        continue;
      }
      add_part(parts[i], models[at]->whole().weights()[i], own.gradients.at(parts[i].name),
               all.gradients[parts[i].name]);
    }
  }
  return all;
}

TEST(ExpertProducts, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : all_mixtures()) {
    std::map<int, RankLosses> one;
    for (const Product& product : products()) {
      const int readers = Mesh(0, product.ranks, product.shape).readers();
      if (!one.contains(readers)) one[readers] = one_process(family, readers);
      const RankLosses job = job_of(family, product);
      const std::string what = family + ", " + product.name();
      expect_near_sums(job.sums, one[readers].sums, what);
      expect_near_gradients(job.gradients, one[readers].gradients, what);
    }
  }
}

TEST(ExpertProducts, RecomputationAndAnotherRunChangeNoBit) {
  for (const Product& product : products()) {
    const RankLosses first = job_of("deepseek_v3", product);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
      const RankLosses again = job_of("deepseek_v3", product, recompute);
      EXPECT_EQ(again.sums, first.sums) << product.name();
      EXPECT_EQ(again.gradients, first.gradients) << product.name();
    }
  }
}

class ExpertProductJob : public DividedJob {
 protected:
  // A step has 8 micro-batches of all processes together.
  ExpertProductJob() : DividedJob({.size_flag = "--expert_parallel_size", .micro_batches = 8}, mixtures()) {}

  [[nodiscard]] static Flags flags_of(const std::string& family) {
    return family == "deepseek_v3" ? Flags{"--aux_loss_alpha", "0.01", "--mtp_loss_weight", "0.3"}
                                   : Flags{"--output_router_logits", "true", "--router_aux_loss_coef", "0.01"};
  }
  [[nodiscard]] Flags product_arguments(const std::string& family, const std::string& output, const Product& product,
                                        const Flags& more = {}) const {
    const int readers = Mesh(0, product.ranks, product.shape).readers();
    return arguments(family, output, readers, 1, joined(joined(product.flags(), flags_of(family)), more));
  }
  void run_product(const std::string& family, const std::string& output, const Product& product,
                   const Flags& more = {}) const {
    finish(product_arguments(family, output, product, more));
  }
  void expect_near_run(const std::string& output, const std::string& one, double tolerance = 1e-4) const {
    expect_near(output, one,
                {"loss", "eval_loss", "grad_norm", "entropy", "epoch", "num_tokens", "expert_load_cv",
                 "expert_load_max", "eval_expert_load_cv", "aux_loss"});
    expect_near_weights(output, one, tolerance);
  }
};

TEST_F(ExpertProductJob, ProcessesHaveTheLossesOfOne) {
  for (const auto& [family, config] : mixtures()) {
    const Flags sgd{"--optim", "sgd", "--learning_rate", "0.1"};
    run_product(family, family, {}, sgd);
    for (const Product& product : products()) {
      const std::string output = family + ", " + product.name();
      run_product(family, output, product, sgd);
      expect_near_run(output, family, 1e-5);
      if (family == "deepseek_v3") expect_near(output, family, {"mtp_loss"});
    }
  }
}

TEST_F(ExpertProductJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run_product("qwen3_moe", "one", {});
  for (const Product& product : products_of_data()) {
    run_product("qwen3_moe", product.name() + " 0", product);
    for (const char* stage : {"1", "2", "3"}) {
      run_product("qwen3_moe", product.name() + stage, product, {"--zero_stage", stage});
      expect_near_run(product.name() + stage, "one");
    }
    EXPECT_EQ(weights(product.name() + "1"), weights(product.name() + " 0"));
    EXPECT_EQ(weights(product.name() + "3"), weights(product.name() + "2"));
  }
}

TEST_F(ExpertProductJob, ARunRepeatsAndContinuesBitForBitAndOnAnotherLayout) {
  run_product("deepseek_v3", "one", {});
  for (const Product& product : products_of_data()) {
    const std::string name = product.name();
    run_product("deepseek_v3", name, product, {"--zero_stage", "1"});
    run_product("deepseek_v3", name + " again", product, {"--zero_stage", "1", "--gradient_checkpointing", "true"});
    expect_same_bits(name + " again", name);
    copy_checkpoint(name, name + " parts", 4);
    run_product("deepseek_v3", name + " parts", product, {"--zero_stage", "1"});
    EXPECT_EQ(weights(name + " parts"), weights(name)) << name;
    const auto continued = [&](const std::string& from, const std::string& to, const Product& next,
                               const Flags& more = {}) {
      copy_checkpoint(from, to, 4);
      run_product("deepseek_v3", to, next, more);
      expect_near_end(to, "one", 4);
    };
    continued(name, name + " to one", {});
    continued("one", name + " from one", product, {"--zero_stage", "3"});
  }
}

TEST_F(ExpertProductJob, ARunInBf16ContinuesBitForBit) {
  const Flags bf16{"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"};
  for (const auto& [rows, zero_stage] : {std::pair(false, "0"), std::pair(true, "0"), std::pair(true, "3")}) {
    const Product product{4, {.tensor_size = 2, .expert_size = 2}, rows};
    const Flags keys = joined(bf16, {"--zero_stage", zero_stage});
    const std::string name = product.name() + zero_stage;
    run_product("deepseek_v3", name, product, keys);
    copy_checkpoint(name, name + " parts", 4);
    run_product("deepseek_v3", name + " parts", product, keys);
    EXPECT_EQ(weights(name + " parts"), weights(name));
  }
}

// Columns are quantized by blocks of a rank's rows, so that losses are only close to those of one process.
TEST_F(ExpertProductJob, ARunInFp8HasAboutTheLossesOfOne) {
  write_file(path("wide.json"),
             R"({"model_type": "qwen3_moe", "vocab_size": 308, "hidden_size": 128, "head_dim": 32,
                 "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "num_experts": 4,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 128, "intermediate_size": 128,
                 "norm_topk_prob": true, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                 "initializer_range": 0.05, "tie_word_embeddings": false})");
  const Flags fp8{"--torch_dtype", "bfloat16", "--fp8", "true"};
  run_product("wide", "one", {}, fp8);
  run_product("wide", "four", {4, {.expert_size = 2, .context_size = 4}}, fp8);
  const std::vector<double> one = series("one", "loss");
  const std::vector<double> four = series("four", "loss");
  ASSERT_EQ(four.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 0.02 * one[i]) << i;
}

TEST_F(ExpertProductJob, APackedFolderIsFineTuned) {
  run_product("mixtral", "model", {});
  const auto tuned = [&](const std::string& output, const Product& product) {
    const int readers = Mesh(0, product.ranks, product.shape).readers();
    finish(
        fine_tuning("model", output,
                    joined(joined({"--max_steps", "6", "--packing", "true", "--max_length", "256"}, layout(readers, 1)),
                           product.flags())));
  };
  tuned("one", {});
  for (const Product& product : products()) {
    tuned(product.name(), product);
    expect_near(product.name(), "one", kTuned);
    expect_near_weights(product.name(), "one");
  }
}

TEST_F(ExpertProductJob, BadInputHasOneLine) {
  const auto refused = [&](const Product& product, const Flags& more = {}) {
    return refusal(product_arguments("mixtral", "refused", product, more));
  };
  EXPECT_THAT(refused({4, {.expert_size = 3, .context_size = 2}}),
              HasSubstr("expert_parallel_size: is 3, which does not divide num_processes 4"));
  EXPECT_THAT(refused({6, {.expert_size = 3, .context_size = 2}}), HasSubstr("is 3, but a layer has 4 experts"));
  EXPECT_THAT(
      refused({2, {.tensor_size = 2, .expert_size = 2}}),
      HasSubstr("expert_parallel_size: is 2 with tensor_parallel_size 2, which does not divide num_processes 2"));
  EXPECT_THAT(refused({8, {.tensor_size = 2, .expert_size = 4}}),
              HasSubstr("is 4, but a layer has 4 experts, of which a process of a tensor group has 2"));
  EXPECT_THAT(refused({3, {.tensor_size = 3}}), HasSubstr("tensor_parallel_size: is 3, but a layer has 4 experts"));
}

}  // namespace
}  // namespace hone::test

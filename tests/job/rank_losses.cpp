#include "job/rank_losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/json_value.h"
#include "core/random.h"
#include "model/registry.h"
#include "model/tensor_parallel_model.h"
#include "model/weights.h"
#include "program/executable.h"
#include "support/models.h"
#include "train/loss_program.h"

namespace hone::test {

std::string SmallModel::config() const {
  Json json{{"model_type", type}, {"vocab_size", vocabulary}, {"initializer_range", 0.05}};
  if (type == "gpt2") {
    json.update(Json{{"n_embd", 32},
                     {"n_layer", layers},
                     {"n_head", 4},
                     {"n_positions", positions},
                     {"embd_pdrop", dropout},
                     {"resid_pdrop", dropout},
                     {"attn_pdrop", 0.0}});
  } else {
    json.update(Json{{"tie_word_embeddings", tied},
                     {"hidden_size", 32},
                     {"intermediate_size", intermediate},
                     {"num_hidden_layers", layers},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", key_heads},
                     {"head_dim", 8},
                     {"max_position_embeddings", positions},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 10000.0}});
  }
  return json.dump();
}

std::unique_ptr<Model> model_of(const std::string& config) {
  return family_registry().create(parse_json(config, "config"));
}

std::vector<std::vector<TokenId>> random_documents(std::uint64_t seed, std::span<const int> lengths,
                                                   std::uint64_t vocabulary) {
  const RandomStream random(seed, "documents");
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t index = 0;
  for (const int length : lengths) {
    std::vector<TokenId>& document = documents.emplace_back();
    for (int i = 0; i < length; ++i) document.push_back(static_cast<TokenId>(random.below(index++, vocabulary)));
  }
  return documents;
}

TensorStore random_weights_of(const Model& model) {
  TensorStore weights = random_weights(model, 5, DType::kF32, cpu_device());
  for (const WeightSpec& spec : model.weights()) {
    if (spec.in_folder) continue;
    const RandomStream random(6, spec.name);
    std::vector<float> values(static_cast<std::size_t>(weights.type(spec.name).elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.05f * random.normal(i);
    weights.upload(spec.name, std::as_bytes(std::span(values)));
  }
  return weights;
}

TensorStore random_parts(const Model& model) {
  const TensorStore whole = random_weights_of(model.whole());
  TensorStore parts(cpu_device(), weight_types(model, DType::kF32));
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    parts.upload(model.weights()[i].name, part_of(model, i, whole));
  }
  return parts;
}

NamedValues values_of(const Model& model, const TensorStore& store) {
  NamedValues values;
  for (const WeightSpec& spec : model.weights()) values[spec.name] = floats_of(store.download(spec.name));
  return values;
}

RankLosses run_losses(Program program, const Model& model, std::span<const HostBatch> batches, double weight) {
  const TensorStore weights = random_parts(model);
  TensorStore gradients(cpu_device(), weight_types(model, DType::kF32));
  Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  RankLosses losses{.sums = {0, 0, 0}, .gradients = {}};
  for (const HostBatch& batch : batches) {
    const LossSums sums = run_loss(executable, batch, weight);
    losses.sums[0] += sums.loss;
    losses.sums[1] += sums.entropy;
    losses.sums[2] += sums.hits;
  }
  losses.gradients = values_of(model, gradients);
  return losses;
}

void add_to(std::vector<float>& sums, std::span<const float> more) {
  sums.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

void expect_near_sums(std::span<const double> group, std::span<const double> one, const std::string& what) {
  ASSERT_EQ(group.size(), one.size()) << what;
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(group[i], one[i], 1e-5 * std::max(1.0, std::abs(one[i]))) << what << ", sum " << i;
  }
}

void expect_near_gradients(const NamedValues& group, const NamedValues& one, const std::string& what) {
  ASSERT_EQ(group.size(), one.size()) << what;
  for (const auto& [name, gradient] : one) {
    EXPECT_LT(relative_difference(group.at(name), gradient), 1e-5) << what << ", " << name;
  }
}

std::map<std::string, double> expect_parts_of_whole(const Model& model, std::span<const std::unique_ptr<Model>> ranks,
                                                    WeightSpec (*part)(const WeightSpec&, int, int),
                                                    const std::string& what) {
  const TensorStore weights = random_weights(model, 5, DType::kF32, cpu_device());
  std::map<std::string, double> copies;
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    const std::vector<std::byte> whole = weights.download(spec.name);
    std::vector<std::byte> assembled(whole.size());
    std::size_t bytes = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::vector<std::byte> own = part_of(*ranks[rank], i, weights);
      put_part(part(spec, static_cast<int>(rank), static_cast<int>(ranks.size())), spec, sizeof(float), own, assembled);
      bytes += own.size();
    }
    EXPECT_EQ(assembled, whole) << what << ", " << spec.name;
    copies[spec.name] = static_cast<double>(bytes) / static_cast<double>(whole.size());
  }
  return copies;
}

}  // namespace hone::test

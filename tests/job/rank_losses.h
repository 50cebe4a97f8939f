// Small models and documents for the ranks of a group in one process (support/rank_threads.h), and what they compute:
// losses and gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/host_batch.h"
#include "model/model.h"
#include "program/program.h"
#include "program/tensor_store.h"

namespace hone::test {

using Configs = std::map<std::string, std::string>;  // text of config.json, by a name

// A model of width 32 with 4 heads.
struct SmallModel {
  std::string type;  // gpt2 or a decoder such as llama
  bool tied = false;
  int layers = 2;
  int key_heads = 4;      // of a decoder
  int intermediate = 48;  // of a decoder
  int positions = 256;
  int vocabulary = 308;
  double dropout = 0;  // of gpt2, except that of attention

  // Returns the text of config.json.
  [[nodiscard]] std::string config() const;
};

[[nodiscard]] std::unique_ptr<Model> model_of(const std::string& config);
using MakeModel = std::function<std::unique_ptr<Model>()>;

// Documents of random tokens, which depend on the number of tokens before them.
[[nodiscard]] std::vector<std::vector<TokenId>> random_documents(std::uint64_t seed, std::span<const int> lengths,
                                                                 std::uint64_t vocabulary);

using NamedValues = std::map<std::string, std::vector<float>>;  // by the names of weights

// The results of a rank's micro-batches.
struct RankLosses {
  std::vector<double> sums;  // loss, entropy, hits
  NamedValues gradients;
};

// Returns random weights in f32, the same in each call, also of adapters.
[[nodiscard]] TensorStore random_weights_of(const Model& model);
// Returns those of a rank; those of a rank of a tensor or an expert group are its parts of
// the whole ones.
[[nodiscard]] TensorStore random_parts(const Model& model);
[[nodiscard]] NamedValues values_of(const Model& model, const TensorStore& store);
// Runs a program of train/loss_program.h with random_parts() on one micro-batch after the other.
[[nodiscard]] RankLosses run_losses(Program program, const Model& model, std::span<const HostBatch> batches,
                                    double weight);

// Adds values to sums, which may be empty.
void add_to(std::vector<float>& sums, std::span<const float> more);

// Expects sums that differ by at most 1e-5, of values above 1 relatively.
void expect_near_sums(std::span<const double> group, std::span<const double> one, const std::string& what);
// Expects gradients whose relative difference (support/models.h) is below 1e-5.
void expect_near_gradients(const NamedValues& group, const NamedValues& one, const std::string& what);

// Expects that the parts of all ranks, which part(spec, rank, ranks) describes, make each weight of the model. Returns
// the size of all parts of a weight relative to the weight: how many ranks have each element.
[[nodiscard]] std::map<std::string, double> expect_parts_of_whole(const Model& model,
                                                                  std::span<const std::unique_ptr<Model>> ranks,
                                                                  WeightSpec (*part)(const WeightSpec&, int, int),
                                                                  const std::string& what);

}  // namespace hone::test

// A rank's share of the weights: its rows if they are divided over the data group (ZeRO stage 3), of its part of each
// weight if they are divided over a tensor or an expert group, and of its stage of a pipeline. Whole weights are
// divided one after the other when a run begins or resumes, and assembled when it saves, in the host memory of rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "checkpoint/model_directory.h"
#include "model/model.h"
#include "model/weights.h"
#include "program/tensor_store.h"
#include "train/job.h"
#include "train/shards.h"

namespace hone {

class HeldWeights {
 public:
  // shards, which must outlive the object: of the model of which this rank holds weights.
  HeldWeights(const UpdateShards& shards, const OptimizerOptions& options)
      : HeldWeights(shards, options.divided_weights && options.ranks > 1, options.rank) {}
  // divided: weights are divided over the data group, of which this process is rank `rank`.
  HeldWeights(const UpdateShards& shards, bool divided, int rank) : shards_(shards), divided_(divided), rank_(rank) {}

  // Fill a store of stored_weights() with the numbers that random_weights() gives the whole model, or with the weights
  // of a folder. At most one whole weight at a time is in host memory.
  void fill_random(std::uint64_t seed, TensorStore& stored) const;
  void load(const ModelDirectory& directory, Vocabulary vocabulary, TensorStore& stored) const;
  // Loads what this rank holds of an adapter that save_adapter() wrote, whole ones in host memory. The model must be a
  // stage of one with an adapter. load() leaves the weights of adapters as they are, except copies of the base's.
  void load_adapter(const std::filesystem::path& folder, TensorStore& stored) const;

  // Called by all ranks. Returns the whole weights in host memory on rank 0, and an empty store on the others.
  [[nodiscard]] TensorStore assemble(const TensorStore& stored, const Job& job) const;

 private:
  // The ranks of a tensor group and of an expert group that have a part of a weight.
  struct PartPlace {
    int tensor_rank = 0;
    int expert_rank = 0;
  };
  // The bytes of this rank's rows in its part of a weight of its stage, which has `bytes` bytes.
  [[nodiscard]] ByteRange rows_of(const WeightSpec& spec, std::size_t bytes) const;
  // Copies a part of a weight to `target`, which rank 0 has, of `bytes` bytes. The first stage that has the weight
  // sends it. index: in Model::whole().
  void assemble_part(std::size_t index, PartPlace place, const Job& job, const TensorStore& stored,
                     std::span<std::byte> target, std::size_t bytes) const;
  // Copies what this rank holds of a whole weight, which is in the memory of `weight`. index: in Model::whole().
  void take(std::size_t index, const TensorStore& weight, TensorStore& stored) const;

  const UpdateShards& shards_;
  bool divided_;
  int rank_;
};

// Returns a store of what this rank holds of the weights, filled by fill().
[[nodiscard]] TensorStore held_weights(const Model& model, const OptimizerOptions& options, DType dtype, Device& device,
                                       const std::function<void(const HeldWeights& held, TensorStore& stored)>& fill);

}  // namespace hone

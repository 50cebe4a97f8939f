// Weights of a job whose ranks have shares of them (ZeRO stage 3): whole weights are divided when a run begins or
// resumes, and assembled when it saves, in host memory.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/device.h"
#include "model/model.h"
#include "program/tensor_store.h"
#include "train/job.h"
#include "train/shards.h"

namespace hone {

// Fills a store that has this rank's rows of the trainable weights and all of the others (stored_weights()) with the
// numbers that random_weights() gives.
void fill_random_shares(const Model& model, std::uint64_t seed, const UpdateShards& shards, int rank,
                        TensorStore& stored);

// Copies this rank's rows of whole weights, and all of those that are not divided, from host memory.
void take_shares(const TensorStore& whole, const UpdateShards& shards, int rank, TensorStore& stored);

// Calls load() on the ranks of a machine in turn, so that its memory holds the whole weights once at a time.
void load_in_turn(const Job& job, const std::function<void()>& load);

// Called by all ranks. Returns the whole weights in host memory on rank 0, and an empty store on the others.
[[nodiscard]] TensorStore assemble_weights(const Model& model, const UpdateShards& shards, const TensorStore& stored,
                                           const Job& job);

}  // namespace hone

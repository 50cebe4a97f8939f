// Collective operations of a run's processes.
#pragma once

#include <memory>

#include "backend/collective.h"
#include "train/job.h"

namespace hone {

// Opens the operations of this rank's groups on a device, and makes them those of this thread. A group of one rank has
// none. All ranks create it together.
class RunCollectives {
 public:
  RunCollectives(Device& device, const Job& job)
      : data_(job.data_size() > 1 ? make_collective(device, *job.peers(), job.data_group()) : nullptr),
        tensor_(job.tensor_size() > 1 ? make_collective(device, *job.peers(), job.tensor_group()) : nullptr),
        pipeline_(job.pipeline_size() > 1 ? make_collective(device, *job.peers(), job.pipeline_group()) : nullptr),
        experts_(job.expert_size() > 1 ? make_collective(device, *job.peers(), job.expert_group()) : nullptr),
        same_experts_(job.expert_size() > 1 && job.data_size() > job.expert_size()
                          ? make_collective(device, *job.peers(), job.same_experts_group())
                          : nullptr),
        context_(job.context_size() > 1 ? make_collective(device, *job.peers(), job.context_group()) : nullptr),
        scope_(MeshCollectives{.data = data_.get(),
                               .tensor = tensor_.get(),
                               .pipeline = pipeline_.get(),
                               .experts = experts_.get(),
                               .same_experts = same_experts_.get(),
                               .context = context_.get()}) {}

  [[nodiscard]] Collective* data() const { return data_.get(); }  // null: one rank
  // Returns true if programs without gradients are operations between ranks too: weights or tokens are divided.
  // Stages of a pipeline exchange values between programs.
  [[nodiscard]] bool has_model_group() const {
    return tensor_ != nullptr || experts_ != nullptr || context_ != nullptr;
  }

 private:
  std::unique_ptr<Collective> data_;
  std::unique_ptr<Collective> tensor_;
  std::unique_ptr<Collective> pipeline_;
  std::unique_ptr<Collective> experts_;
  std::unique_ptr<Collective> same_experts_;
  std::unique_ptr<Collective> context_;
  CollectiveScope scope_;
};

}  // namespace hone

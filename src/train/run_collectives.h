// Collective operations of a run's processes.
#pragma once

#include <memory>

#include "backend/collective.h"
#include "train/job.h"

namespace hone {

// Opens the operations of this rank's data group, tensor group and pipeline on a device, and makes them those of this
// thread.
// A group of one rank has none. All ranks create it together.
class RunCollectives {
 public:
  RunCollectives(Device& device, const Job& job)
      : data_(job.data_size() > 1 ? make_collective(device, *job.peers(), job.data_group()) : nullptr),
        tensor_(job.tensor_size() > 1 ? make_collective(device, *job.peers(), job.tensor_group()) : nullptr),
        pipeline_(job.pipeline_size() > 1 ? make_collective(device, *job.peers(), job.pipeline_group()) : nullptr),
        scope_(data_.get(), tensor_.get(), pipeline_.get()) {}

  [[nodiscard]] Collective* data() const { return data_.get(); }  // null: one rank
  [[nodiscard]] bool has_tensor_group() const { return tensor_ != nullptr; }

 private:
  std::unique_ptr<Collective> data_;
  std::unique_ptr<Collective> tensor_;
  std::unique_ptr<Collective> pipeline_;
  CollectiveScope scope_;
};

}  // namespace hone

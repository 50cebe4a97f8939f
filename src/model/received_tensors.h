// Weights that another process sends one by one, under the names of a checkpoint: which tensors a model has, and how
// each is put into its blocks.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/device_cast.h"
#include "model/model.h"
#include "model/weight_layout.h"
#include "program/tensor_store.h"

namespace hone {

// A tensor as its sender announces it.
struct TensorNotice {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape;

  // Throws Error if the product is too large for 64 bits or an extent is negative.
  [[nodiscard]] std::size_t bytes() const;
};

class ReceivedTensors {
 public:
  // `model` must outlive the object.
  explicit ReceivedTensors(const Model& model);

  // Throws Error with name and reason if the model has no such tensor, it has another shape, or its elements are no
  // floating-point numbers that hone converts. Names may lack the model's base prefix; experts may come each or merged.
  void check(const TensorNotice& notice) const;
  // Puts a tensor of check(), whose elements are in memory of the weights' device, into its blocks. Types
  // of the weights are copied and converted on the device; others, and matrices that are transposed or quantized, go
  // through host memory. `data` must not change until the device has done its work.
  void load(const TensorNotice& notice, const std::byte* data, TensorStore& weights);

  // Forgets what has been loaded, and gives memory of the device back.
  void begin();
  [[nodiscard]] bool has_any() const { return !loaded_.empty(); }
  // Returns true if every part of every block has been loaded since begin().
  [[nodiscard]] bool has_all() const { return loaded_.size() == parts_; }

 private:
  // Returns the tensor of that name; null if the model computes it from others. Throws Error if there is none.
  [[nodiscard]] const CheckpointTensor* find(const std::string& name) const;
  void load_slice(const CheckpointTensor& tensor, const PartSlice& slice, const TensorNotice& notice,
                  const std::byte* data, std::vector<std::byte>& host, TensorStore& weights);
  // Returns the conversion between two types on the device of the weights.
  [[nodiscard]] DeviceCast& cast(DType from, DType to, Device& device);

  const Model& model_;
  std::vector<WeightSpec> merged_;                         // blocks of experts with their parts in merged tensors
  std::vector<CheckpointTensor> tensors_;                  // point into the model's specs and merged_
  std::map<std::string, std::size_t> index_;               // name -> index into tensors_
  std::set<std::string, std::less<>> ignored_;             // copies of other tensors
  std::size_t parts_ = 0;                                  // of all blocks of a model folder
  std::set<std::pair<std::string, std::int64_t>> loaded_;  // block and first row of each part
  std::map<std::pair<DType, DType>, DeviceCast> casts_;
};

}  // namespace hone

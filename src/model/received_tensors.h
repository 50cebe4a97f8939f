// Weights that another process sends one by one, under the names of a checkpoint: which tensors a model has, and how
// each is put into its blocks.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
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

// Returns the bytes of all tensors together, or the largest number if it is less: announced shapes are any numbers.
// Throws Error like TensorNotice::bytes().
[[nodiscard]] std::size_t bytes_of(std::span<const TensorNotice> notices);
// Returns how many of the first tensors a sender packs into one buffer: those up to the first that makes it longer than
// `limit` bytes, which is one of them. Throws Error like TensorNotice::bytes().
[[nodiscard]] std::size_t packed_count(std::span<const TensorNotice> notices, std::size_t limit);

// Returns notices as a text, and the notices of such a text.
[[nodiscard]] std::string text_of_notices(std::span<const TensorNotice> notices);
[[nodiscard]] std::vector<TensorNotice> notices_of_text(const std::string& text);

// Memory of a device in which tensors arrive. It grows as needed.
class TensorStaging {
 public:
  // Returns memory of this many bytes or more, whose content is undefined; until the next call. Waits for the device's
  // work before it replaces earlier memory. Throws Error if the device has no memory for them; then there is none.
  [[nodiscard]] std::byte* room_for(std::size_t bytes, Device& device);
  // Gives the memory back.
  void release() { buffer_ = Buffer(); }

 private:
  Buffer buffer_;
};

class ReceivedTensors {
 public:
  // `model` must outlive the object. If it is what a rank of a tensor group has, tensors are whole ones, of which
  // load() takes the rank's parts; it must not be in FP8 then.
  explicit ReceivedTensors(const Model& model);

  // Throws Error with name and reason if the model has no such tensor, it has another shape, or its elements are no
  // floating-point numbers that hone converts. Names may lack the model's base prefix; experts may come each or merged.
  void check(const TensorNotice& notice) const;
  // Puts a tensor of check(), whose elements are in memory of the weights' device, into its blocks. Types
  // of the weights are copied and converted on the device; others, and matrices that are transposed or quantized, go
  // through host memory. `data` must not change until the device has done its work.
  void load(const TensorNotice& notice, const std::byte* data, TensorStore& weights);
  // The same for tensors that follow each other in memory.
  void load_all(std::span<const TensorNotice> notices, const std::byte* data, TensorStore& weights);

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
  // The same for a block of which this rank has a part, `own`.
  void load_share(const CheckpointTensor& tensor, const PartSlice& slice, const WeightSpec& own,
                  const TensorNotice& notice, const std::byte* data, std::vector<std::byte>& host,
                  TensorStore& weights);
  // Returns the tensor in host memory, with `host` as its memory.
  static StoredTensor on_host(const TensorNotice& notice, const std::byte* data, std::vector<std::byte>& host,
                              Device& device);
  // Copies numbers on the device, and converts them if the types differ.
  void move(const std::byte* from, DType sent, std::byte* to, DType held, std::int64_t elements, Device& device);
  // Returns the conversion between two types on the device of the weights.
  [[nodiscard]] DeviceCast& cast(DType from, DType to, Device& device);

  const Model& model_;                                     // the whole one
  std::map<std::string, const WeightSpec*> divided_;       // block -> what this rank has of it, if it has a part
  std::vector<WeightSpec> merged_;                         // blocks of experts with their parts in merged tensors
  std::vector<CheckpointTensor> tensors_;                  // point into the model's specs and merged_
  std::map<std::string, std::size_t> index_;               // name -> index into tensors_
  std::set<std::string, std::less<>> ignored_;             // copies of other tensors
  std::size_t parts_ = 0;                                  // of all blocks of a model folder
  std::set<std::pair<std::string, std::int64_t>> loaded_;  // block and first row of each part
  std::map<std::pair<DType, DType>, DeviceCast> casts_;
};

}  // namespace hone

// A model's weights on a device, which can be given back and taken again, and replaced by those of another folder. The
// ranks of an engine's group do all of this together, each with its part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <vector>

#include "engine/engine_group.h"
#include "model/model.h"
#include "program/tensor_store.h"

namespace hone {

enum class SleepLevel : std::uint8_t {
  kKeepWeights,  // the weights wait in host memory
  kDropWeights,  // the weights are forgotten and must be updated after waking
};

class ResidentWeights {
 public:
  // `model` must outlive the object. group: null if this process has the whole model.
  ResidentWeights(const Model& model, TensorStore weights, EngineGroup* group);

  [[nodiscard]] Device& device() const { return device_; }
  // Returns true if the weights are on the device.
  [[nodiscard]] bool are_there() const { return store_.has_value(); }
  // Returns true if every weight has a value from one folder.
  [[nodiscard]] bool are_whole() const { return whole_; }
  // To be called after the caller has changed values in store().
  void set_whole(bool whole) { whole_ = whole; }
  [[nodiscard]] std::size_t bytes() const { return store_ ? store_->bytes() : 0; }
  // Throws Defect while the weights are given back.
  [[nodiscard]] TensorStore& store();

  // Copies weights that are there and whole to host memory, to be called before give_back(kKeepWeights). Returns the
  // Error of a rank that has no memory for them, and then no rank has a copy.
  [[nodiscard]] std::exception_ptr keep();
  void give_back(SleepLevel level);
  // Takes the weights back; nothing happens if they are there. Returns the Error of a rank whose device has no memory
  // for them, and then none has them.
  [[nodiscard]] std::exception_ptr take_back();
  // Replaces the weights, which must be there, by those of another folder of the same model (reload_weights()). Returns
  // the Error of a rank; nothing has changed then if are_whole() is what it was before.
  [[nodiscard]] std::exception_ptr update(const std::filesystem::path& folder);

 private:
  const Model& model_;
  Device& device_;
  EngineGroup* group_;
  const std::vector<NamedType> types_;
  std::optional<TensorStore> store_;  // unset while they are given back
  std::vector<std::byte> kept_;       // the tensors in their order, while they are given back and kept
  bool whole_ = true;
};

}  // namespace hone

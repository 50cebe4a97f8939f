// A base model with slots for LoRA adapters: each row of a batch uses the adapter in one of the slots, or none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/lora.h"
#include "model/wrapped_model.h"

namespace hone {

// Name of the input of traced programs with the slot of each token, i32 [tokens]; -1: no adapter.
inline constexpr const char* kAdapterSlots = "adapter_slots";

// The matrices of one adapter as they are stored in a slot, by block: A [q, columns] and scale x B [rows, q], zero
// where the adapter has a smaller rank or no matrix.
struct AdapterImage {
  struct Block {
    std::vector<std::byte> down, up;
  };
  std::map<std::string, Block, std::less<>> blocks;
};

// Adapts all linear layers except the head, as a LoraModel of the same adapter does. weights() are those of the base,
// followed by those of the slots, which are not part of a model folder.
class AdapterSlots final : public WrappedModel {
 public:
  // `slots` and `max_rank` are at least 1. Throws Error if the model has a linear layer that can have no adapter.
  AdapterSlots(std::unique_ptr<Model> base, std::int64_t slots, std::int64_t max_rank);

  const std::vector<WeightSpec>& traced_weights() const override { return specs_; }
  // Adds the adapters and the input kAdapterSlots.
  Program adapted(Program program, const TraceUse& use) const override;

  [[nodiscard]] std::int64_t slots() const { return slots_; }

  // Reads an adapter's folder (PEFT's format) in the dtype of the model's weights. Throws Error if its rank is above
  // max_rank, if it is of a kind that slots do not have (DoRA, an embedding, the head, a bias, a module saved whole),
  // or if it belongs to another model.
  [[nodiscard]] AdapterImage read(const std::filesystem::path& folder, DType dtype) const;
  // Writes an adapter into a slot of weights that have the types of this model.
  void place(const AdapterImage& image, std::int64_t slot, TensorStore& weights) const;

 private:
  [[nodiscard]] static std::string down_name(std::string_view block) { return std::string(block) + ".slots_A"; }
  [[nodiscard]] static std::string up_name(std::string_view block) { return std::string(block) + ".slots_B"; }

  AdapterSlots(std::unique_ptr<LoraModel> layout, std::int64_t slots, std::int64_t max_rank);

  const LoraModel& layout_;  // base(), one adapter of max_rank on all linear layers; its specs name the tensors
  std::int64_t slots_;
  std::int64_t max_rank_;
};

}  // namespace hone

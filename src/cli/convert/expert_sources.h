// The tensors of experts that hone convert writes in another layout (model/expert_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "checkpoint/safetensors.h"
#include "model/expert_layout.h"
#include "model/weight_layout.h"

namespace hone {

// Merges the tensors of single experts, or splits merged ones, piece by piece: a tensor is written from ranges of those
// that hold its parts, and no tensor is ever in memory as a whole. Numbers and FP8 scales are copied, so that there and
// back changes no bit.
class ExpertConversion {
 public:
  // `files` must outlive the sources. Throws Error if the model has no mixture, if the files have another number of
  // experts than config.json, if a tensor is missing or has another shape, or if FP8 scales are missing.
  ExpertConversion(const Model& model, const WeightFiles& files, ExpertLayout layout);
  ExpertConversion(const ExpertConversion&) = delete;
  ExpertConversion& operator=(const ExpertConversion&) = delete;

  // Returns true if sources() replace the tensor, or if it holds the scales of one that they replace.
  [[nodiscard]] bool takes(std::string_view name) const { return taken_.contains(name); }

  struct Types {
    std::optional<DType> wanted;  // unset: as stored, F16 and FP8 as bf16
    bool keeps_fp8 = true;        // FP8 stays FP8 whatever is wanted
  };
  // All sources share `buffer`, so they must be read in turn; they may outlive this object. Throws Error if tensors
  // that are merged have different types, or if blocks of FP8 scales would be divided.
  [[nodiscard]] std::vector<TensorSource> sources(const Types& types, std::vector<std::byte>& buffer) const;

 private:
  // A part of a tensor to write and where it is stored.
  struct Segment {
    ScaledTensor stored;
    const CheckpointTensor* from = nullptr;
    const PartSlice* from_slice = nullptr;
    const PartSlice* to_slice = nullptr;
  };

  [[nodiscard]] std::vector<Segment> segments_of(const CheckpointTensor& tensor) const;
  [[nodiscard]] static TensorSource converted(const CheckpointTensor& tensor, const std::vector<Segment>& segments,
                                              DType dtype, std::vector<std::byte>& buffer);
  [[nodiscard]] static TensorSource copied(const CheckpointTensor& tensor, const std::vector<Segment>& segments);
  [[nodiscard]] static TensorSource copied_scales(const CheckpointTensor& tensor, const std::vector<Segment>& segments);

  const WeightFiles& files_;
  std::vector<WeightSpec> from_specs_, to_specs_;
  std::vector<CheckpointTensor> from_, to_;                                                  // point into the specs
  std::map<std::string_view, std::pair<const CheckpointTensor*, const PartSlice*>> stored_;  // by names of parts
  std::set<std::string, std::less<>> taken_;
};

}  // namespace hone

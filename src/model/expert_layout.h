// The two layouts in which folders hold the experts of a mixture: a tensor for each expert and projection, as
// published, or one tensor [experts, rows, columns] for all of them, as transformers 5 has them in memory and can save
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/weight_files.h"
#include "core/options.h"
#include "model/model.h"
#include "model/weight_spec.h"

namespace hone {

enum class ExpertLayout : std::uint8_t {
  kAsStored,
  kSplit,   // model.layers.0.mlp.experts.7.down_proj.weight, ...
  kMerged,  // model.layers.0.mlp.experts.down_proj, ...
};
template <>
inline constexpr EnumTable kEnumTable<ExpertLayout>{.names = "auto|split|merged"};

// The model's blocks with their parts where this folder has them: a part whose tensor is not there, but the tensor of
// its alternative is, becomes a slice of that one.
[[nodiscard]] std::vector<WeightSpec> specs_in_folder(const Model& model, const WeightFiles& files);

// The blocks of `specs` whose tensors depend on the layout, with their parts in `layout` (kSplit or kMerged): the
// matrices of experts, and routers.
[[nodiscard]] std::vector<WeightSpec> specs_of_layout(const std::vector<WeightSpec>& specs, ExpertLayout layout);

// Names of the modules that hold the experts of a block, in either layout: "model.layers.0.mlp.experts".
[[nodiscard]] std::vector<std::string> expert_modules(const WeightSpec& spec);

// Throws Error if the files hold another number of experts in a layer than config.json says.
void check_expert_counts(const Model& model, const WeightFiles& files);

}  // namespace hone

// Layouts of a run over the processes of a job: the sizes of their groups, what ZeRO divides, the size of micro-batches
// and what is recomputed. A layout changes how a run is computed, not what: the sequences of a step stay the same.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "train/options.h"

namespace hone {

// The values of the keys of these names, of which those up to zero_stage are the keys of layouts.
struct Layout {
  std::int64_t tensor_parallel_size = 1;
  bool sequence_parallel = false;
  std::int64_t pipeline_parallel_size = 1;
  std::int64_t virtual_pipeline_parallel_size = 1;
  std::int64_t expert_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  std::int64_t zero_stage = 0;
  std::int64_t per_device_train_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  Recomputation gradient_checkpointing = Recomputation::kAutomatic;

  auto operator<=>(const Layout&) const = default;
};

[[nodiscard]] Layout layout_of(const TrainingOptions& options);
void apply(const Layout& layout, TrainingOptions& options);

// Returns "tensor 2, zero_stage 1, 4 x 2, recomputing layers": groups of one process and stage 0 are left out;
// 4 x 2: sequences of a micro-batch x micro-batches.
[[nodiscard]] std::string to_text(const Layout& layout);
// Returns "--zero_stage 1 --per_device_train_batch_size 4 ...": the keys with which a run has the layout.
[[nodiscard]] std::string flags_of(const Layout& layout);

// The layout in text that all ranks read, and that of the options a checkpoint has saved. Throws Error if a key is
// missing or no number.
[[nodiscard]] Json to_json(const Layout& layout);
[[nodiscard]] Layout layout_from_json(const Json& options);

// Returns all layouts of options.num_processes processes for the sequences of a step, which are those of
// per_device_train_batch_size x gradient_accumulation_steps x num_processes; ascending. `unit` processes are a unit
// that is repeated over the job: groups divide it. sequence_tokens: of each sequence. batch_size: the only
// per_device_train_batch_size, if there is one. gradient_checkpointing is that of the options. Leaves out what
// check_mesh() refuses; what a model refuses is not known here. Stages have several chunks only where
// pipeline_parallel_size divides the micro-batches of a step. Each tensor group is there with and without
// sequence_parallel.
[[nodiscard]] std::vector<Layout> possible_layouts(const TrainingOptions& options, std::int64_t unit,
                                                   std::int64_t sequence_tokens,
                                                   std::optional<std::int64_t> batch_size = {});

}  // namespace hone

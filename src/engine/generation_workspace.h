// The workspace of an engine: its programs and its KV cache.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_options.h"
#include "engine/step_capacity.h"
#include "model/model.h"
#include "workspace/workspace.h"

namespace hone {

// The store of the keys and values.
inline constexpr const char* kKvStore = "kv_cache";
// The name under which add_generation() (engine/engine.h) adds the program of a capacity.
[[nodiscard]] std::string program_name(const StepCapacity& capacity);
// Returns the options with num_blocks as in the KV cache that add_generation() added to the workspace.
[[nodiscard]] EngineOptions with_blocks_of(const Workspace& workspace, EngineOptions options);
// Bytes that a block of the KV cache takes on the device: its rows, and with latent rows also the keys and values to
// which a step expands it.
[[nodiscard]] std::size_t bytes_of_block(const Model& model, DType dtype, const EngineOptions& options,
                                         DeviceKind device);
// Creates the workspace of an engine on existing weights, which must outlive it, and allocates it.
[[nodiscard]] std::unique_ptr<Workspace> workspace_of(const Model& model, const TensorStore& weights,
                                                      const std::shared_ptr<Arena>& arena,
                                                      const EngineOptions& options);

}  // namespace hone

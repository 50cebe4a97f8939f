// The models of runs that are planned: their configuration, without weights.
#pragma once

#include "planner/plan.h"
#include "train/options.h"

namespace hone {

// Creates the model that the options name, without weights: a config.json, a known shape, or a folder on this machine,
// in the cache or on the hub.
[[nodiscard]] ModelSketch sketch_of(const ModelOptions& options);
// Creates the model that a run of these options trains, likewise. A name is never taken for a known shape.
[[nodiscard]] ModelSketch model_to_train(const PretrainOptions& options);
[[nodiscard]] ModelSketch model_to_train(const SftOptions& options);
// Creates a model that starts from scratch. A configuration without vocab_size takes it from the tokenizer.
[[nodiscard]] ModelSketch new_model(const PretrainOptions& options);

}  // namespace hone

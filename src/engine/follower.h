// A rank of an engine's group that is not the first.
#pragma once

#include "engine/engine.h"
#include "engine/engine_group.h"
#include "program/tensor_store.h"
#include "text/tokenizer.h"

namespace hone {

// Carries out the orders of the first rank until one of them is the end. model: this rank's part
// (EngineGroup::part_of()), with its weights. Throws JobFailure if a rank is lost.
void follow_engine(EngineGroup& group, const Model& model, const Tokenizer& tokenizer, TensorStore weights);

// The same for an engine on the workspace of this rank, of which the first rank orders runs only.
void follow_engine(EngineGroup& group, Engine& engine);

}  // namespace hone

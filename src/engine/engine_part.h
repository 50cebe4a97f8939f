// The model of an engine that is loaded for known options.
#pragma once

#include "engine/engine_group.h"
#include "engine/engine_options.h"
#include "model/loaded_model.h"

namespace hone {

// Has load_model() return the model with what the options need, or, if `group` is not null, this rank's part of it. It
// throws Error before weights are loaded if the options, lengths aside, do not suit the model. The group must outlive
// what is returned.
[[nodiscard]] ModelSetup engine_part(EngineGroup* group, const EngineOptions& options);

}  // namespace hone

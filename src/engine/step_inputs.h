// The inputs of one step of generation.
#pragma once

#include <span>

#include "engine/engine_options.h"
#include "engine/scheduler.h"
#include "program/executable.h"

namespace hone {

// Sets the inputs and counts of a generation program (engine/generation_program.h) for these chunks. The program's
// samples are those of the chunks in their order, of each chunk first the given tokens of the prompt, then those that
// are drawn.
void set_step_inputs(Executable& program, std::span<const ScheduledChunk> chunks, const EngineOptions& options);

}  // namespace hone

// The inputs of one step of generation.
#pragma once

#include <span>

#include "engine/engine_options.h"
#include "engine/scheduler.h"
#include "program/executable.h"

namespace hone {

// Sets the inputs and counts of a generation program (engine/generation_program.h) for these chunks. The program's
// samples are those of the chunks in their order, of each chunk first the given tokens of the prompt, then those that
// are drawn. set_masks() sets the rest.
void set_step_inputs(Executable& program, std::span<const ScheduledChunk> chunks, const EngineOptions& options);

// The input before which Executable::begin() stops, so that the masks may be set while the device computes the logits.
inline constexpr const char* kLateInput = "mask_rows";

// Returns true if the mask of a sample depends on a token that the host has not read.
[[nodiscard]] bool waits_for_masks(std::span<const ScheduledChunk> chunks);
// Sets the masks of the samples of a program with EngineOptions::adjust_logits.
void set_masks(Executable& program, std::span<const ScheduledChunk> chunks);

}  // namespace hone

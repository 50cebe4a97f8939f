// Runs a command that generates: in this process, or in a tensor group whose first rank does the command's work while
// the others follow its engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "backend/device_option.h"
#include "engine/engine_group.h"
#include "model/loaded_model.h"
#include "system/peers.h"

namespace hone {

struct EngineJob {
  std::int64_t tensor_parallel_size = 1;
  std::string model = {};  // folder or name; empty: nothing is to be found or downloaded
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t answer_limit = std::chrono::seconds(kAnswerLimit).count();  // seconds until a silent rank ends the job
  bool converses = false;                                                  // Ctrl+C stops an answer and not the job
};

// Loads the model or, in a group, this rank's part of it.
using LoadPart = std::function<LoadedModel(EngineGroup* group)>;

// Returns what lead(group) returns on the first rank, or on the only one with null. Starts the processes of a group, if
// no launcher has, and then returns the job's exit code. Followers call load(group), and then carry out what the first
// rank's engine orders. Throws Error if a launcher has started another number of processes.
int run_engine_job(const EngineJob& engine_job, const LoadPart& load,
                   const std::function<int(EngineGroup* group)>& lead);

}  // namespace hone

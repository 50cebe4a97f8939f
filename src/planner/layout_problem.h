// Describes runs whose layouts are searched.
#pragma once

#include "planner/layout_plan.h"
#include "planner/plan.h"

namespace hone {

// The devices of a job.
struct JobDevices {
  DeviceModel model;          // with StepRates
  std::size_t available = 0;  // bytes of each
  std::int64_t unit = 0;      // processes of which layouts are repeated over the job; 0: all
};

// Returns the devices that the options name: those of a plan for `name`, otherwise that of this machine, with
// options.agreed_memory if it is set. A GPU without StepRates has those of an H100, with a notice. Throws Error if no
// device has the name.
[[nodiscard]] JobDevices job_devices(const TrainingOptions& options, const std::string& name = {});

// Describe a run on the data of its options, of which every sequence is as long as these allow. options: those of the
// run, with num_processes; per_device_train_batch_size and gradient_accumulation_steps say how many sequences a step of
// data-parallel processes has. Throw Error if the sequences exceed the model's positions.
[[nodiscard]] LayoutProblem layout_problem(const PretrainOptions& options, const OptionInput& input,
                                           const ModelSketch& sketch, const JobDevices& devices);
[[nodiscard]] LayoutProblem layout_problem(const SftOptions& options, const OptionInput& input,
                                           const ModelSketch& sketch, const JobDevices& devices);

}  // namespace hone

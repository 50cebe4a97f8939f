// The keys `layout: auto` and `layout: search`: a run takes the first layout of the ranking before it starts.
#pragma once

#include <functional>

#include "planner/layout_problem.h"
#include "train/job.h"

namespace hone {

// Settles the layout of a run if options.layout asks for it, and logs a line that says which it is and why. Rank 0
// chooses for all ranks, from the least memory of their devices: with auto the layout of the checkpoint that the run
// resumes from, if that is one of as many processes; otherwise the first of rank_layouts(), of a resumed run with its
// per_device_train_batch_size. sketch: returns the model of the run. Throws Error if no layout fits, or if a rank has
// other options.
void choose_layout(const Job& job, PretrainOptions& options, const OptionInput& input,
                   const std::function<ModelSketch()>& sketch);
void choose_layout(const Job& job, SftOptions& options, const OptionInput& input,
                   const std::function<ModelSketch()>& sketch);

}  // namespace hone

// Runs a training command as one process or as a job of several.
#pragma once

#include <cstdint>
#include <functional>

#include "core/options.h"
#include "system/job_place.h"
#include "system/launcher.h"
#include "train/job.h"
#include "train/options.h"

namespace hone {

// Settles the layout of the job's options, the same on all ranks; called by each before anything else.
using ChooseLayout = std::function<void(const Job& job)>;

// Sets options.num_processes and zero_stage to those of the job, then runs `work` in this process. If the job has
// several, they are started first, and this process waits for them; or a launcher has started this one, which then
// joins the others. Returns the exit code. A failure of `work` is reported to the other ranks; its message names the
// rank. In a dry run nothing is started, and rank 0 alone works. choose: may change the layout; unset: it stays.
int run_as_job(TrainingOptions& options, const std::function<int(const Job& job)>& work,
               const ChooseLayout& choose = {});

// The same for any command: starts `ranks`, if there are any, or joins the job at `place` and runs `work` in it.
// answer_limit: seconds after which a rank that does not answer ends the job.
int run_ranks(const LocalRanks& ranks, const JobPlace& place, std::int64_t answer_limit,
              const std::function<int(const Job& job)>& work);

}  // namespace hone

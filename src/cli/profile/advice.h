// Suggests settings that make steps faster, and says what each of them gained when it was tried.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/profile/report.h"
#include "cli/profile/subject.h"

namespace hone {

// A change of settings that may make steps faster. It is worth a trial, which alone says what it gains.
struct Proposal {
  std::string reason;              // what the profile shows: "its rows are not packed"
  std::vector<Settings> attempts;  // the first that fits the recipe and the memory counts
  bool changes_batch = false;      // an optimizer step then learns from more tokens
};
// Tokens of the largest micro-batch, and of the largest step.
struct StepTokens {
  std::int64_t micro_batch = 0;
  std::int64_t step = 0;
};
[[nodiscard]] StepTokens largest_tokens(const Subject& subject);
// Returns the proposals for steps with these settings, in the order of their trials: tune_gemm last.
[[nodiscard]] std::vector<Proposal> proposals(const ProfileReport& report, const StepSettings& settings,
                                              const StepTokens& tokens);
// Returns those that concern the programs of steps only: dtype, recomputation, offload, GEMMs.
[[nodiscard]] std::vector<Proposal> program_proposals(const StepSettings& settings);

// Speed of some steps, measured without the profiler.
struct StepRate {
  double seconds = 0;  // of a step
  double tokens = 0;   // of a step
  [[nodiscard]] double tokens_per_second() const { return seconds > 0 ? tokens / seconds : 0; }
};
// Returns {"step_ms", "tokens_per_second"}.
[[nodiscard]] Json to_json(const StepRate& rate);
// Returns the speed of steps from the seconds and the tokens of each. The seconds of a token are the median of the
// steps, which, unlike the mean, leaves out a step that another process slowed.
[[nodiscard]] StepRate median_rate(std::span<const StepRate> steps);
// Runs steps of a subject and returns their speed by median_rate(). Warm-up steps come first.
[[nodiscard]] StepRate rate_of(const Subject& subject, TrainingStep& step, std::int64_t warmup, std::int64_t steps);

// A proposal after its trial.
struct TriedProposal {
  Proposal proposal;
  Settings settings;    // the attempt that ran; empty if none did
  StepRate rate;        // with it; of 0 seconds if it was not measured
  std::string refusal;  // of the last attempt if none ran: why
};
// Measures the speed with changed settings; with none, what trials are compared with: the same first steps after the
// same warm-up. Throws Error if the settings do not fit the others or the memory.
using MeasureRate = std::function<StepRate(const Settings& changes)>;
// Returns how to measure training steps, over so many of them.
[[nodiscard]] MeasureRate rate_measure(const OpenSubject& open, std::int64_t steps);
// Tries each proposal, one after the other, so that only one of them needs memory at a time. Without a measure nothing
// runs, and the first attempt of each counts, at an unknown speed.
[[nodiscard]] std::vector<TriedProposal> try_all(std::vector<Proposal> proposals, const MeasureRate& measure);

struct Advice {
  std::string text;      // one or two sentences
  Settings settings;     // to set; empty if the advice is none to set something
  double gain = 0;       // tokens/s with the settings / tokens/s without them, as tried; 0: not tried
  StepRate rate = {};    // with the settings
  std::string key = {};  // to change where no value can be proposed
};
// Advice from a profile and the trials, largest gain first, then what cannot be tried. before: the speed without
// changes, by the measure of the trials. Trials that gained less than kLeastGain are left out.
[[nodiscard]] std::vector<Advice> advice(const ProfileReport& report, const StepSettings& settings,
                                         const StepRate& before, const std::vector<TriedProposal>& tried);
// Returns the part that comes from trials.
[[nodiscard]] std::vector<Advice> tried_advice(const StepRate& before, const std::vector<TriedProposal>& tried);
inline constexpr double kLeastGain = 1.02;
inline constexpr double kSlowStart = 1;  // seconds to read and encode the data, from which on token_cache is advised

// Trials without gain and those that did not run, a line each.
[[nodiscard]] std::string other_trials_text(const StepRate& before, const std::vector<TriedProposal>& tried);

// Returns "advice" of kernel_summary.json: [{"text", "settings": {KEY: VALUE}, "key", "gain", "tokens_per_second"}],
// each but the first only where it is known.
[[nodiscard]] Json to_json(const std::vector<Advice>& advice);
// Returns "trials" of kernel_summary.json: [{"settings", "gain", "step_ms", "tokens_per_second", "refusal"}].
[[nodiscard]] Json to_json(const StepRate& before, const std::vector<TriedProposal>& tried);

}  // namespace hone

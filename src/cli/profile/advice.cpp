#include "cli/profile/advice.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

// Shares of a step from which on a setting is worth a trial. What it gains is measured.
constexpr double kUpdateShare = 0.08;  // in the optimizer
constexpr double kHostShare = 0.05;    // between operations
constexpr double kDataShare = 0.02;    // reading batches, compared with the step
constexpr double kWorthwhile = 0.005;  // least saving of a kernel that is reported
constexpr std::int64_t kLargerBatch = 4;

double share_of(const ProfileReport& report, std::string_view category) {
  const auto found = std::ranges::find(report.categories, category, &ShareOfStep::name);
  return found == report.categories.end() ? 0 : found->seconds / report.step_seconds;
}

std::string percent(double share) { return text_of(std::round(share * 1000) / 10, "%"); }

void propose_data(const StepSettings& settings, const StepTokens& tokens, std::vector<Proposal>& list) {
  if (settings.packs) return;
  list.push_back({.reason = text_of("documents are not packed into rows of max_length, so that a micro-batch has at "
                                    "most ",
                                    format_count(tokens.micro_batch), " tokens"),
                  .attempts = {{"--packing", "true"}},
                  .changes_batch = true});
}

void propose_programs(const StepSettings& settings, std::vector<Proposal>& list) {
  if (settings.recomputes) {
    list.push_back({.reason = "the backward pass computes activations again that fit the memory",
                    .attempts = {{"--gradient_checkpointing", "false"}}});
  }
  if (settings.offloads) {
    list.push_back({.reason = "activations move to host memory and back, and fit the device",
                    .attempts = {{"--activation_offloading", "false"}}});
  }
  if (settings.dtype == DType::kF32) {
    list.push_back({.reason = "weights and GEMMs are in float32",
                    .attempts = {{settings.of_recipe ? "--torch_dtype" : "--dtype", "bfloat16"}}});
  }
}

// Comes last: its trial fills the table of tuned GEMMs, from which a later trial would gain, too.
void propose_tuning(const StepSettings& settings, std::vector<Proposal>& list) {
  if (!settings.gpu || settings.tuned) return;
  list.push_back({.reason = "GEMMs use the algorithm that the library chooses", .attempts = {{"--tune_gemm", "true"}}});
}

// Proposes fewer and larger micro-batches of the same step.
void propose_micro_batches(const StepSettings& settings, const StepTokens& tokens, std::vector<Proposal>& list) {
  if (tokens.step <= tokens.micro_batch) return;
  Proposal proposal{.reason = text_of("a step of ", format_count(tokens.step), " tokens is cut into micro-batches of ",
                                      format_count(tokens.micro_batch))};
  if (settings.of_recipe) {
    for (std::int64_t most = tokens.step; most > tokens.micro_batch; most /= 2) {
      proposal.attempts.push_back({"--max_tokens_per_micro_batch", text_of(most)});
    }
  } else {
    for (std::int64_t parts = 1; parts < settings.accumulation; parts *= 2) {
      if (settings.accumulation % parts != 0) break;
      proposal.attempts.push_back({"--batch_size", text_of(settings.batch_size * settings.accumulation / parts),
                                   "--gradient_accumulation_steps", text_of(parts)});
    }
  }
  list.push_back(std::move(proposal));
}

void propose_update(const ProfileReport& report, const StepSettings& settings, const StepTokens& tokens,
                    std::vector<Proposal>& list) {
  const double update = share_of(report, name_of(OpCategory::kOptimizer));
  const double host = report.host_seconds() / report.step_seconds;
  if (update > kUpdateShare && settings.optim == OptimizerType::kAdamw && settings.dtype == DType::kBf16) {
    list.push_back(
        {.reason = text_of("the optimizer takes ", percent(update), " of the step, with f32 states and master weights"),
         .attempts = {{"--optim", "adamw_bf16"}}});
  }
  if (update <= kUpdateShare && host <= kHostShare) return;
  // There the cause of few tokens is another one, whose removal changes the learning less.
  if (!settings.packs || tokens.step > tokens.micro_batch) return;
  const std::string batch = settings.of_recipe ? "--per_device_train_batch_size" : "--batch_size";
  list.push_back(
      {.reason = update > kUpdateShare
                     ? text_of("the optimizer takes ", percent(update), " of the step")
                     : text_of(percent(host), " of the step is not in operations, which are short for this device"),
       .attempts = {{batch, text_of(settings.batch_size * kLargerBatch)},
                    {batch, text_of(settings.batch_size * 2)},
                    {"--gradient_accumulation_steps", text_of(settings.accumulation * kLargerBatch)}},
       .changes_batch = true});
}

std::string tried_text(const TriedProposal& each, const StepRate& before, double gain) {
  std::string text =
      text_of(settings_text(each.settings), ": ", std::round(gain * 100) / 100, " times the tokens/s (",
              format_count(std::llround(each.rate.tokens_per_second())), ", up from ",
              format_count(std::llround(before.tokens_per_second())), ", tried); ", each.proposal.reason, ".");
  if (each.proposal.changes_batch)
    text += " A step then learns from more tokens, which may need another learning rate.";
  return text;
}

// Advises to keep encoded data. The gain is that of the whole run, whose steps stay as they are. step: its seconds.
Advice start_advice(const ProfileReport& report, double step) {
  const auto tenths = [](double seconds) { return std::round(seconds * 10) / 10; };
  const Settings cached{"--token_cache", "true"};
  const double steps = report.total_steps * (step + report.data_seconds);
  const double gain = (report.start_seconds + steps) / (report.cached_start_seconds + steps);
  if (report.total_steps <= 0 || report.cached_start_seconds <= 0 || gain < kLeastGain) {
    return {
        .text = text_of(settings_text(cached), " saves ", tenths(report.start_seconds - report.cached_start_seconds),
                        " s of encoding at each later start."),
        .settings = cached};
  }
  return {
      .text = text_of(settings_text(cached), ": ", std::round(gain * 100) / 100, " times the tokens/s of a later run (",
                      "its data are ready after ", tenths(report.cached_start_seconds), " s, down from ",
                      tenths(report.start_seconds), ", tried; its ", format_count(std::llround(report.total_steps)),
                      " steps take ", tenths(steps), " s); every start encodes the data again."),
      .settings = cached,
      .gain = gain,
      .rate = {.seconds = report.cached_start_seconds + steps, .tokens = report.total_steps * report.tokens_per_step}};
}

// Appends what no setting of a step changes.
void append_remarks(const ProfileReport& report, const StepSettings& settings, std::vector<Advice>& list) {
  const double step = report.step_seconds;
  const double unprofiled = report.unprofiled_step_seconds > 0 ? report.unprofiled_step_seconds : step;
  if (report.data_seconds > kDataShare * unprofiled) {
    list.push_back({.text = text_of("Reading the batches of a step takes ", percent(report.data_seconds / unprofiled),
                                    " of its time, which data in memory would save; put HONE_CACHE on a faster disk."),
                    .settings = {}});
  }
  if (!settings.caches_tokens && report.start_seconds > kSlowStart) list.push_back(start_advice(report, unprofiled));
  for (const KernelSummary* kernel : candidates(report)) {
    const double won = kernel->seconds - kernel->floor;
    if (won < kWorthwhile * step) continue;
    list.push_back({.text = text_of(kernel->op, " (", kernel->module, ", ", kernel->phase, ") takes ",
                                    percent(kernel->seconds / step), " of the step at ", percent(kernel->achieved()),
                                    " of the roofline; a faster kernel or fusing it with a neighbour could save up to ",
                                    percent(won / step), " of the step."),
                    .settings = {}});
  }
}

}  // namespace

StepTokens largest_tokens(const Subject& subject) {
  StepTokens largest;
  for (const std::vector<HostBatch>& step : subject.steps) {
    std::int64_t all = 0;
    for (const HostBatch& batch : step) {
      largest.micro_batch = std::max<std::int64_t>(largest.micro_batch, batch.token_count());
      all += batch.token_count();
    }
    largest.step = std::max(largest.step, all);
  }
  return largest;
}

std::vector<Proposal> proposals(const ProfileReport& report, const StepSettings& settings, const StepTokens& tokens) {
  std::vector<Proposal> list;
  propose_programs(settings, list);
  propose_data(settings, tokens, list);
  propose_micro_batches(settings, tokens, list);
  propose_update(report, settings, tokens, list);
  propose_tuning(settings, list);
  return list;
}

std::vector<Proposal> program_proposals(const StepSettings& settings) {
  std::vector<Proposal> list;
  propose_programs(settings, list);
  propose_tuning(settings, list);
  return list;
}

std::vector<Advice> tried_advice(const StepRate& before, const std::vector<TriedProposal>& tried) {
  std::vector<Advice> list;
  for (const TriedProposal& each : tried) {
    if (each.settings.empty()) continue;
    if (each.rate.seconds <= 0) {
      list.push_back({.text = text_of(settings_text(each.settings), " was not tried; ", each.proposal.reason, "."),
                      .settings = each.settings});
      continue;
    }
    const double gain = each.rate.tokens_per_second() / before.tokens_per_second();
    if (gain < kLeastGain) continue;
    list.push_back(
        {.text = tried_text(each, before, gain), .settings = each.settings, .gain = gain, .rate = each.rate});
  }
  std::ranges::stable_sort(list, [](const Advice& a, const Advice& b) { return a.gain > b.gain; });
  return list;
}

std::vector<Advice> advice(const ProfileReport& report, const StepSettings& settings, const StepRate& before,
                           const std::vector<TriedProposal>& tried) {
  std::vector<Advice> list = tried_advice(before, tried);
  append_remarks(report, settings, list);
  std::ranges::stable_sort(list, [](const Advice& a, const Advice& b) { return a.gain > b.gain; });
  if (list.empty()) {
    list.push_back({.text = "Nothing stands out: every large operation is close to the roofline.", .settings = {}});
  }
  return list;
}

}  // namespace hone

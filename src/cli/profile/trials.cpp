// Tries proposed settings on training steps.
#include <algorithm>
#include <cmath>

#include "cli/profile/advice.h"
#include "cli/profile/node_clock.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"

namespace hone {
namespace {

Json settings_json(const Settings& settings) {
  Json json = Json::object();
  for (std::size_t i = 0; i + 1 < settings.size(); i += 2) json[settings[i].substr(2)] = settings[i + 1];
  return json;
}

// Measures the first attempt that fits.
TriedProposal tried(Proposal proposal, const MeasureRate& measure) {
  TriedProposal result{.proposal = std::move(proposal), .settings = {}, .rate = {}, .refusal = {}};
  for (const Settings& settings : result.proposal.attempts) {
    log_info(text_of("trying ", settings_text(settings)));
    try {
      result.rate = measure(settings);
      result.settings = settings;
      return result;
    } catch (const Error& error) {
      result.refusal = error.what();
    }
  }
  return result;
}

bool was_measured(const TriedProposal& each) { return each.rate.seconds > 0; }

}  // namespace

StepRate rate_of(const Subject& subject, TrainingStep& step, std::int64_t warmup, std::int64_t steps) {
  for (std::int64_t i = 0; i < warmup; ++i) step.run(subject.step(i));
  std::vector<StepRate> each;
  for (std::int64_t i = 0; i < steps; ++i) {
    StepRate& rate = each.emplace_back();
    for (const HostBatch& batch : subject.step(i)) rate.tokens += static_cast<double>(batch.token_count());
    const double begin = host_seconds();
    step.run(subject.step(i));
    rate.seconds = host_seconds() - begin;
  }
  return median_rate(each);
}

StepRate median_rate(std::span<const StepRate> steps) {
  HONE_ASSERT(!steps.empty(), "no steps");
  StepRate rate;
  std::vector<double> per_token;
  for (const StepRate& each : steps) {
    rate.tokens += each.tokens / static_cast<double>(steps.size());
    per_token.push_back(each.seconds / std::max(each.tokens, 1.0));
  }
  std::ranges::sort(per_token);
  const std::size_t half = per_token.size() / 2;
  const double median = per_token.size() % 2 == 1 ? per_token[half] : (per_token[half - 1] + per_token[half]) / 2;
  rate.seconds = median * std::max(rate.tokens, 1.0);
  return rate;
}

MeasureRate rate_measure(const OpenSubject& open, std::int64_t steps) {
  return [open, steps](const Settings& changes) {
    Subject subject = open(changes);
    TrainingStep step(*subject.model, std::move(*subject.workspace), subject.optimizer, subject.dtype, *subject.device);
    // A GPU records each program in its second run, and each step may run other programs.
    const std::int64_t warmup = subject.settings.gpu ? 2 * std::ssize(subject.steps) : 1;
    return rate_of(subject, step, warmup, steps);
  };
}

std::vector<TriedProposal> try_all(std::vector<Proposal> proposals, const MeasureRate& measure) {
  std::vector<TriedProposal> all;
  all.reserve(proposals.size());
  for (Proposal& proposal : proposals) {
    if (measure) {
      all.push_back(tried(std::move(proposal), measure));
      continue;
    }
    const Settings first = proposal.attempts.front();
    all.push_back({.proposal = std::move(proposal), .settings = first, .rate = {}, .refusal = {}});
  }
  return all;
}

std::string other_trials_text(const StepRate& before, const std::vector<TriedProposal>& tried) {
  std::string text;
  for (const TriedProposal& each : tried) {
    if (each.settings.empty()) {
      text += text_of("  ", settings_text(each.proposal.attempts.back()), ": ", each.refusal, "\n");
      continue;
    }
    const double gain = each.rate.tokens_per_second() / before.tokens_per_second();
    if (!was_measured(each) || gain >= kLeastGain) continue;
    text += text_of("  ", settings_text(each.settings), ": ", std::round(gain * 100) / 100, " times the tokens/s\n");
  }
  return text.empty() ? text : "tried without gain:\n" + text;
}

Json to_json(const std::vector<Advice>& advice) {
  Json list = Json::array();
  for (const Advice& each : advice) {
    Json row = {{"text", each.text}};
    if (!each.settings.empty()) row["settings"] = settings_json(each.settings);
    if (!each.key.empty()) row["key"] = each.key;
    if (each.gain > 0) {
      row["gain"] = each.gain;
      row["tokens_per_second"] = each.rate.tokens_per_second();
    }
    list.push_back(std::move(row));
  }
  return list;
}

Json to_json(const StepRate& rate) {
  return {{"step_ms", rate.seconds * 1e3}, {"tokens_per_second", rate.tokens_per_second()}};
}

Json to_json(const StepRate& before, const std::vector<TriedProposal>& tried) {
  Json list = Json::array();
  for (const TriedProposal& each : tried) {
    if (each.settings.empty()) {
      list.push_back({{"settings", settings_json(each.proposal.attempts.back())}, {"refusal", each.refusal}});
      continue;
    }
    if (!was_measured(each)) continue;
    Json row = {{"settings", settings_json(each.settings)},
                {"gain", each.rate.tokens_per_second() / before.tokens_per_second()}};
    row.update(to_json(each.rate));
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace hone

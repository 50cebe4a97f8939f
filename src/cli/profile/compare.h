// Compares two profiles: what became slower or faster, by how much, and why.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"

namespace hone {

// An operation of a module and phase in two profiles, A and B. Times are milliseconds per step.
struct KernelChange {
  std::string name;    // "linear"; of grpo the phase, or in reward_changes() the reward
  std::string module;  // "layers.*.mlp"
  std::string phase;
  double before = 0;  // in A; 0 if it is not in A
  double after = 0;   // in B
  // Parts of after - before, which add up to it: more or fewer calls a step, more or less work a call, and another rate
  // of FLOPs or bytes. All 0 if the operation is in one profile only.
  double calls = 0;
  double work = 0;
  double rate = 0;
  std::string reason;  // the largest part in words: "more calls: 48, up from 24"; of a rate also the counted reason

  [[nodiscard]] double change() const { return after - before; }
};

// Returns the changes from summary `a` to summary `b`, both the content of kernel_summary.json, largest first.
//
// The time of an operation is calls x work / rate, where work is the FLOPs or the bytes of a call, whichever limits it
// in A. Its change is divided among the three by their logarithms: with L = (after - before) / ln(after / before), each
// has L x ln(ratio of its values), and the parts add up exactly (the logarithmic mean Divisia index; Ang, Energy Policy
// 32 (2004), 1131-1139).
[[nodiscard]] std::vector<KernelChange> profile_changes(const Json& a, const Json& b);

// Returns those of the rewards of grpo, whose calls are completions. Rewards may run while completions are generated,
// so their times are no part of the step.
[[nodiscard]] std::vector<KernelChange> reward_changes(const Json& a, const Json& b);

// Returns the comparison as text: the steps, then a table of what changed and one of rewards. most: rows of the first.
[[nodiscard]] std::string comparison_text(const Json& a, const Json& b, std::size_t most = 30);

// Reads the summary of a profile from its folder or its kernel_summary.json. Throws Error if there is none.
[[nodiscard]] Json read_summary(const std::filesystem::path& path);

}  // namespace hone

#include "planner/plan.h"

#include <array>
#include <cstdio>

#include "core/strings.h"
#include "train/fit.h"

namespace hone {
namespace {

// "layers.3.mlp.down" -> "mlp"; "layers.3.input_norm" -> "norms"; "embedding" as it is.
std::string part_of(const std::string& weight) {
  if (weight.find("norm") != std::string::npos) return "norms";
  if (weight.find(".attention.") != std::string::npos) return "attention";
  if (weight.find(".mlp.") != std::string::npos) return "mlp";
  return weight;
}

void add_model(RunPlan& plan, const Model& model) {
  for (const WeightSpec& spec : model.weights()) {
    std::int64_t elements = 1;
    for (const std::int64_t size : spec.shape) elements *= size;
    const std::string part = spec.in_folder ? part_of(spec.name) : "adapter";
    bool found = false;
    for (auto& [name, count] : plan.parameters) {
      if (name != part) continue;
      count += elements;
      found = true;
    }
    if (!found) plan.parameters.emplace_back(part, elements);
  }
}

void add_cost(RunPlan& plan, const Program& program) {
  const Cost cost = program.cost();
  plan.flops_per_micro_batch = cost.flops;
  plan.bytes_per_micro_batch = cost.bytes_read + cost.bytes_written;
}

template <class Run>
void add_fit(RunPlan& plan, const Run& run) {
  const Device& device = open_device(run.options.device);
  plan.device = device.name();
  plan.fit = fit_text(run.options, run.dtype, memory_of(device), plan.memory.total(),
                      [&](const TrainingOptions& options) { return bytes_with(run, options); });
}

template <class... Values>
std::string printed(const char* format, Values... values) {
  std::array<char, 160> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

}  // namespace

RunPlan plan_run(const LanguageRun& run) {
  const LanguagePrograms programs = trace_run(run);
  RunPlan plan{
      .command = run.command, .dtype = std::string(name_of(run.dtype)), .parameters = {}, .memory = programs.memory};
  plan.steps = run.total_steps;
  plan.tokens_per_micro_batch = run.batches->limits().tokens;
  add_model(plan, *run.model);
  add_cost(plan, programs.training);
  add_fit(plan, run);
  return plan;
}

RunPlan plan_run(const GrpoRun& run) {
  const GrpoPrograms programs = trace_run(run);
  RunPlan plan{
      .command = "grpo", .dtype = std::string(name_of(run.dtype)), .parameters = {}, .memory = programs.memory};
  plan.steps = run.total_steps;
  plan.tokens_per_micro_batch = run.batch.micro_batch * run.engine.max_model_len;
  add_model(plan, *run.model);
  add_cost(plan, programs.policy);
  add_fit(plan, run);
  return plan;
}

std::string to_text(const RunPlan& plan) {
  std::int64_t total = 0;
  for (const auto& [name, count] : plan.parameters) total += count;
  std::string text = printed("parameters, in %s\n", plan.dtype.c_str());
  for (const auto& [name, count] : plan.parameters) {
    text += printed("  %-28s %16s\n", name.c_str(), format_count(count).c_str());
  }
  text += printed("  %-28s %16s\n", "total", format_count(total).c_str());
  text += "memory\n" + to_text(plan.memory) + plan.device + ": " + plan.fit;
  text += printed("work of a micro-batch of %s tokens\n", format_count(plan.tokens_per_micro_batch).c_str());
  text += printed("  %-28s %14.3f GFLOP\n", "forward and backward", plan.flops_per_micro_batch * 1e-9);
  text += printed("  %-28s %14.3f GB\n", "read and written", plan.bytes_per_micro_batch * 1e-9);
  text += printed("steps %s\n", format_count(plan.steps).c_str());
  return text;
}

}  // namespace hone

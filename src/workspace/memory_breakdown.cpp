#include "workspace/memory_breakdown.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/strings.h"

namespace hone {

void MemoryBreakdown::add_program(const MemoryPlan& plan) {
  arena = std::max(arena, plan.arena);
  peak_activations = std::max(peak_activations, plan.peak_activations);
  peak_workspace = std::max(peak_workspace, plan.peak_workspace);
}

std::string to_text(const MemoryBreakdown& memory) {
  std::string text;
  const auto line = [&](const char* name, std::size_t bytes) {
    if (bytes == 0) return;
    std::array<char, 96> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "  %-28s %12s  %s bytes\n", name, format_bytes(bytes).c_str(),
                  format_count(static_cast<std::int64_t>(bytes)).c_str());
    text += buffer.data();
  };
  line("weights", memory.weights);
  line("reference model", memory.reference);
  line("gradients", memory.gradients);
  line("optimizer states", memory.optimizer);
  line("KV cache", memory.kv_cache);
  line("kept for micro-batches", memory.stages);
  line("inputs", memory.inputs);
  line("step arena", memory.arena);
  line("  peak activations", memory.peak_activations);
  line("  largest workspace", memory.peak_workspace);
  line("reused by rollouts", memory.leased);
  line("total", memory.total());
  line("optimizer states on the host", memory.paged);
  line("activations on the host", memory.offloaded);
  return text;
}

}  // namespace hone

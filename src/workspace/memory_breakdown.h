// The memory of a run by category.
#pragma once

#include <cstddef>
#include <string>

#include "program/memory_plan.h"

namespace hone {

// Sizes in bytes. total() equals exactly what the run allocates on its device.
struct MemoryBreakdown {
  std::size_t weights = 0;
  std::size_t reference = 0;  // weights of the reference model (GRPO with beta)
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t kv_cache = 0;
  std::size_t stages = 0;            // what a stage of a pipeline keeps of micro-batches, and exchanges; FP8 weights
  std::size_t inputs = 0;            // buffers that the host writes before a launch, shared ones once
  std::size_t arena = 0;             // activations and scratch buffers of the program that needs the most
  std::size_t leased = 0;            // memory that training and rollouts share, so it is counted twice above
  std::size_t offloaded = 0;         // activations kept in host memory; not in total()
  std::size_t paged = 0;             // optimizer states kept in host memory; not in total()
  std::size_t peak_activations = 0;  // part of arena
  std::size_t peak_workspace = 0;    // part of arena

  [[nodiscard]] std::size_t total() const {
    return weights + reference + gradients + optimizer + kv_cache + stages + inputs + arena - leased;
  }
  // Adds the plan of a program that shares the arena, which is that of the program that needs the most, without its
  // inputs.
  void add_program(const MemoryPlan& plan);
};

// Returns a table with one line for each category that is not empty.
[[nodiscard]] std::string to_text(const MemoryBreakdown& memory);

}  // namespace hone

// Adapters merged into a model's weights as these are read.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/model_directory.h"
#include "model/adapter_config.h"
#include "model/weight_spec.h"

namespace hone {

class AdapterMerge {
 public:
  // Those of the folder. Throws Error where one is of a kind that hone does not know. The folder must outlive it.
  explicit AdapterMerge(const ModelDirectory& directory);

  [[nodiscard]] bool empty() const { return adapters_.empty(); }
  // Adds what the adapters have for a part [rows, columns] of the checkpoint, in f32: W + scale B A; with magnitudes m
  // (DoRA), m / |W + scale B A| times that, by rows; or the tensor that was saved in its place. Throws Error where a
  // tensor has another shape.
  void apply(const WeightPart& part, std::span<float> values, std::int64_t columns);
  // Throws Error naming a tensor that no part has asked for.
  void check_all_applied() const;

 private:
  struct Adapter {
    const SafetensorsFile* file;
    AdapterConfig config;
    std::set<std::string, std::less<>> unused;
  };
  void apply(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns);

  std::vector<Adapter> adapters_;
};

}  // namespace hone

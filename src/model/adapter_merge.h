// Merges LoRA and DoRA adapters into the weights of their base model while the weights are loaded.
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
  // Reads the adapters of the folder, which must outlive this object. Throws Error if hone does not support the kind of
  // an adapter.
  explicit AdapterMerge(const ModelDirectory& directory);

  [[nodiscard]] bool empty() const { return adapters_.empty(); }
  // Applies the adapters to `values`, a weight part [rows, columns] of the checkpoint in f32. The result is W + scale B
  // A; with magnitudes m (DoRA) each row is then scaled to the norm m; a tensor that the adapter saved whole replaces
  // W. Throws Error if a tensor of an adapter has an unexpected shape.
  void apply(const WeightPart& part, std::span<float> values, std::int64_t columns);
  // Throws Error naming a tensor of an adapter that no call of apply() used.
  void check_all_applied() const;

 private:
  struct Adapter {
    const SafetensorsFile* file;
    AdapterConfig config;
    std::set<std::string, std::less<>> unused;  // names of tensors that are not applied yet
  };
  void apply(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns);

  std::vector<Adapter> adapters_;
};

}  // namespace hone

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
  // The two matrices of a module, null if the adapter has none for it. Those of an embedding (is_table) have other
  // names and are transposed.
  struct Factors {
    const StoredTensor* a = nullptr;
    const StoredTensor* b = nullptr;
    bool is_table = false;
  };

  void apply(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns);
  // Returns a tensor of the adapter and marks it as used; null if there is none. name: without PEFT's prefix.
  static const StoredTensor* take(Adapter& adapter, const std::string& name);
  // Replaces the values by a tensor that the adapter saved whole, as the base layer of an adapter or as a module of
  // modules_to_save.
  static void replace_by_whole(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns);
  // Returns both matrices of a module or none. Throws Error if one is missing or the module is not a target.
  static Factors factors_of(Adapter& adapter, const std::string& module);
  // DoRA: scales each row to its magnitude. Throws Error unless the adapter has magnitudes exactly if it says so.
  static void scale_rows(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns);

  std::vector<Adapter> adapters_;
};

}  // namespace hone

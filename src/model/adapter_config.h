// Reads the adapter_config.json of a LoRA adapter in PEFT's format, as far as merging the adapter needs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "model/module_choice.h"

namespace hone {

class AdapterConfig {
 public:
  // `file` is the path of the configuration, for messages. Throws Error with file, key, value and a fix if a value is
  // invalid or needs a kind of adapter that hone cannot merge. Keys that only affect training are ignored. A key that
  // neither PEFT 0.21 nor hone defines is logged once, unless its value is null, false or empty.
  AdapterConfig(const Json& config, std::string file);

  [[nodiscard]] const std::string& file() const { return file_; }
  // Rank of a module's adapter: the first entry of rank_pattern that matches the module, or r.
  [[nodiscard]] std::int64_t rank(std::string_view module) const;
  // Factor of B A: alpha / rank, or alpha / sqrt(rank) with use_rslora; alpha_pattern may override lora_alpha.
  [[nodiscard]] double scale(std::string_view module) const;
  // Returns true if target_modules, exclude_modules, layers_to_transform and layers_pattern give the module an adapter.
  [[nodiscard]] bool targets(std::string_view module) const;
  [[nodiscard]] bool dora() const { return dora_; }
  // Key ensure_weight_tying: tied embedding and head share one adapter.
  [[nodiscard]] bool ties_tables() const { return ties_tables_; }

 private:
  using Numbers = std::vector<std::pair<NamePattern, double>>;  // in the order of the file; the first match counts

  void refuse_unknown(const Json& config) const;
  void read_modules(const Json& config);
  [[nodiscard]] ModuleSet choice(const Json& value, std::string_view key) const;
  [[nodiscard]] Numbers numbers(const Json& config, std::string_view key) const;
  [[nodiscard]] std::string place(std::string_view key) const;  // "FILE: KEY", for errors

  std::string file_;
  std::int64_t rank_ = 8;
  double alpha_ = 8;
  bool rslora_ = false;
  bool dora_ = false;
  bool ties_tables_ = false;
  Numbers ranks_, alphas_;
  bool targets_all_ = false;  // target_modules is null or all-linear: any module with tensors has an adapter
  ModuleSet targets_, excluded_;
  std::vector<std::int64_t> layers_;  // layers_to_transform; empty: all layers
  std::vector<NamePattern> layer_prefixes_;
};

}  // namespace hone

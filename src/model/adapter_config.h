// adapter_config.json of a LoRA adapter, as PEFT writes it: what merging needs of it.
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
  // `file`: where it was read, for errors. Throws Error naming file, key, value and what to do, where a value is none
  // or asks for what hone does not merge. Keys that bear on training alone have no effect; one that neither PEFT 0.21
  // nor hone knows is said once, unless it is null, false or empty.
  AdapterConfig(const Json& config, std::string file);

  [[nodiscard]] const std::string& file() const { return file_; }
  // Of a module's adapter: r or what rank_pattern says, and what the product of B and A is multiplied with.
  [[nodiscard]] std::int64_t rank(std::string_view module) const;
  [[nodiscard]] double scale(std::string_view module) const;
  // Whether target_modules, exclude_modules, layers_to_transform and layers_pattern give it an adapter.
  [[nodiscard]] bool targets(std::string_view module) const;
  [[nodiscard]] bool dora() const { return dora_; }
  // ensure_weight_tying: embedding and head, where they are one, have one adapter.
  [[nodiscard]] bool ties_tables() const { return ties_tables_; }

 private:
  using Numbers = std::vector<std::pair<NamePattern, double>>;

  void refuse_unknown(const Json& config) const;
  void read_modules(const Json& config);
  [[nodiscard]] ModuleChoice choice(const Json& value, std::string_view key) const;
  [[nodiscard]] Numbers numbers(const Json& config, std::string_view key) const;
  [[nodiscard]] std::string place(std::string_view key) const;

  std::string file_;
  std::int64_t rank_ = 8;
  double alpha_ = 8;
  bool rslora_ = false;
  bool dora_ = false;
  bool ties_tables_ = false;
  Numbers ranks_, alphas_;
  bool targets_all_ = false;  // target_modules is null or all-linear: the tensors say which
  ModuleChoice targets_, excluded_;
  std::vector<std::int64_t> layers_;  // empty: all
  std::vector<NamePattern> layer_prefixes_;
};

}  // namespace hone

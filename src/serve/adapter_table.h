// The adapters that a server offers by name. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "model/adapter_slots.h"

namespace hone {

struct ServedAdapter {
  std::string name;
  std::string path;
  std::int64_t id = 0;  // RequestAdapter::id
  AdapterImage image;
};

class AdapterTable {
 public:
  // Adapters of `model`, which must outlive the table, in the dtype of its weights.
  AdapterTable(const AdapterSlots& model, DType dtype) : model_(model), dtype_(dtype) {}

  [[nodiscard]] const AdapterSlots& model() const { return model_; }
  // Reads an adapter's folder. Throws Error as AdapterSlots::read() does, and if the name is taken, unless `replaces`:
  // later requests then use the new adapter.
  void load(const std::string& name, const std::string& path, bool replaces = false);
  // Removes a name; requests under way keep their adapter. Returns false if there is no such name.
  [[nodiscard]] bool unload(std::string_view name);
  // Returns null if there is no such name.
  [[nodiscard]] std::shared_ptr<const ServedAdapter> find(std::string_view name) const;
  [[nodiscard]] std::vector<std::shared_ptr<const ServedAdapter>> all() const;

 private:
  [[nodiscard]] std::vector<std::shared_ptr<const ServedAdapter>>::const_iterator place_of(std::string_view name) const;

  const AdapterSlots& model_;
  const DType dtype_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const ServedAdapter>> adapters_;  // in the order of loading; guarded by mutex_
  std::int64_t last_id_ = 0;                                    // guarded by mutex_
};

}  // namespace hone

#include "serve/adapter_table.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace hone {

std::vector<std::shared_ptr<const ServedAdapter>>::const_iterator AdapterTable::place_of(std::string_view name) const {
  return std::ranges::find_if(adapters_, [&](const auto& adapter) { return adapter->name == name; });
}

void AdapterTable::load(const std::string& name, const std::string& path, bool replaces) {
  const auto check = [&] {
    if (!replaces && place_of(name) != adapters_.end())
      throw Error("lora_name", text_of("\"", name, "\" is loaded already"), "unload it before, or choose another name");
  };
  {
    const std::lock_guard lock(mutex_);
    check();
  }
  auto adapter = std::make_shared<ServedAdapter>(
      ServedAdapter{.name = name, .path = path, .id = 0, .image = model_.read(path, dtype_)});
  const std::lock_guard lock(mutex_);
  check();
  adapter->id = ++last_id_;
  if (const auto old = place_of(name); old != adapters_.end()) adapters_.erase(old);
  adapters_.push_back(std::move(adapter));
}

bool AdapterTable::unload(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = place_of(name);
  if (found == adapters_.end()) return false;
  adapters_.erase(found);
  return true;
}

std::shared_ptr<const ServedAdapter> AdapterTable::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = place_of(name);
  return found == adapters_.end() ? nullptr : *found;
}

std::vector<std::shared_ptr<const ServedAdapter>> AdapterTable::all() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

}  // namespace hone

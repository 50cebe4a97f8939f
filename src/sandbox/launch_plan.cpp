#include "sandbox/launch_plan.h"

#include <cstring>

#include "core/error.h"

namespace hone {
namespace {

class PlanWriter {
 public:
  void number(std::uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view value) {
    number(value.size());
    bytes_ += value;
  }
  template <class Values, class Write>
  void list(const Values& values, Write&& write) {
    number(values.size());
    for (const auto& value : values) write(value);
  }
  void texts(const std::vector<std::string>& values) {
    list(values, [this](const std::string& value) { text(value); });
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class PlanReader {
 public:
  explicit PlanReader(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    const std::string_view stored = piece(sizeof value);
    std::memcpy(&value, stored.data(), stored.size());
    return value;
  }
  std::string_view view() { return piece(number()); }
  std::string text() { return std::string(view()); }
  template <class Value, class Read>
  void list(std::vector<Value>& values, Read&& read) {
    for (std::uint64_t left = number(); left > 0; --left) values.push_back(read());
  }
  void texts(std::vector<std::string>& values) {
    list(values, [this] { return text(); });
  }

 private:
  std::string_view piece(std::size_t size) {
    HONE_ASSERT(size <= bytes_.size(), "the launch plan is truncated");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
};

}  // namespace

std::string encode(const LaunchPlan& plan) {
  PlanWriter to;
  to.texts(plan.arguments);
  to.texts(plan.environment);
  to.list(plan.world.mounts, [&](const LaunchMount& mount) {
    to.number(static_cast<std::uint64_t>(mount.kind));
    to.text(mount.from);
    to.text(mount.to);
  });
  to.list(plan.world.links, [&](const LaunchLink& link) {
    to.text(link.target);
    to.text(link.path);
  });
  to.list(plan.files, [&](const SandboxFile& file) {
    to.text(file.name);
    to.text(file.content);
    to.number(file.executable ? 1 : 0);
  });
  to.list(plan.pipes, [&](const SandboxPipe& pipe) {
    to.text(pipe.path);
    to.text(pipe.name);
  });
  to.list(plan.limits, [&](const ResourceLimit& limit) {
    to.number(static_cast<std::uint64_t>(limit.resource));
    to.number(limit.most);
  });
  to.number(plan.disk_bytes);
  to.text(plan.filter);
  return to.take();
}

// Reads the fields in the order in which encode() writes them. Initializers in braces are evaluated from left to right.
LaunchPlan decode_plan(std::string_view bytes) {
  PlanReader from(bytes);
  LaunchPlan plan;
  from.texts(plan.arguments);
  from.texts(plan.environment);
  from.list(plan.world.mounts,
            [&] { return LaunchMount{static_cast<MountKind>(from.number()), from.text(), from.text()}; });
  from.list(plan.world.links, [&] { return LaunchLink{from.text(), from.text()}; });
  from.list(plan.files, [&] { return SandboxFile{from.text(), from.view(), from.number() != 0}; });
  from.list(plan.pipes, [&] { return SandboxPipe{from.text(), from.text()}; });
  from.list(plan.limits, [&] { return ResourceLimit{static_cast<int>(from.number()), from.number()}; });
  plan.disk_bytes = from.number();
  plan.filter = from.text();
  return plan;
}

}  // namespace hone

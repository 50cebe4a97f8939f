// The filters, tests and methods that chat templates may call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace hone {

// What a rendering may spend. Throws TemplateFailure at the limit.
class TemplateMeter {
 public:
  void step() { charge(1); }
  // Work or memory in proportion to `bytes`.
  void charge_bytes(std::uint64_t bytes) { charge(1 + bytes / 32); }
  // `times` as much.
  void charge_bytes(std::uint64_t bytes, std::uint64_t times) {
    if (__builtin_mul_overflow(bytes, times, &bytes)) bytes = UINT64_MAX;
    charge_bytes(bytes);
  }
  // Looking for one text in another.
  void charge_search(std::string_view text, std::string_view wanted) {
    charge_bytes(text.size(), 1 + wanted.size() / 64);
  }
  void charge_comparison(const TemplateValue& a, const TemplateValue& b) {
    charge_bytes(std::min(a.shape().size, b.shape().size));
  }
  // `item in container`.
  void charge_containment(const TemplateValue& container, const TemplateValue& item);

 private:
  void charge(std::uint64_t steps) {
    constexpr std::uint64_t kMostSteps = 10'000'000;
    if (steps > kMostSteps - steps_) give_up();
    steps_ += steps;
  }
  [[noreturn]] static void give_up();

  std::uint64_t steps_ = 0;
};

// The arguments of a call. Each is asked for once by its place and name; `finish` then finds those nobody asked for.
class TemplateArguments {
 public:
  std::vector<TemplateValue> positional;
  std::vector<std::pair<std::string, TemplateValue>> named;

  [[nodiscard]] const TemplateValue* find(std::size_t place, std::string_view name);
  [[nodiscard]] TemplateValue get(std::size_t place, std::string_view name, TemplateValue fallback);
  [[nodiscard]] TemplateValue get_named(std::string_view name, TemplateValue fallback);  // has no place
  [[nodiscard]] std::string get_text(std::size_t place, std::string_view name, std::string_view fallback);
  [[nodiscard]] std::int64_t get_integer(std::size_t place, std::string_view name, std::int64_t fallback);
  [[nodiscard]] bool get_bool(std::size_t place, std::string_view name, bool fallback);
  // What nobody asked for: a tuple, and a dict.
  [[nodiscard]] TemplateValue take_rest();
  [[nodiscard]] TemplateValue take_named_rest();
  void finish(std::string_view function) const;

 private:
  std::size_t used_positional_ = 0;
  std::vector<std::string> used_named_;
};

// All throw TemplateFailure.
[[nodiscard]] TemplateValue apply_filter(TemplateMeter& meter, std::string_view name, const TemplateValue& subject,
                                         TemplateArguments& arguments);
[[nodiscard]] bool apply_test(TemplateMeter& meter, std::string_view name, const TemplateValue& subject,
                              TemplateArguments& arguments);
[[nodiscard]] bool has_filter(std::string_view name);
[[nodiscard]] bool has_test(std::string_view name);
[[nodiscard]] bool has_method(const TemplateValue& self, std::string_view name);
[[nodiscard]] TemplateValue call_method(TemplateMeter& meter, const TemplateValue& self, std::string_view name,
                                        TemplateArguments& arguments);

// object.name and object[key] as Jinja resolves them; an Undefined where there is no such thing.
[[nodiscard]] TemplateValue get_attribute(const TemplateValue& object, std::string_view name);
[[nodiscard]] TemplateValue get_item(TemplateMeter& meter, const TemplateValue& object, const TemplateValue& key);
// "a.b.0" as the filters' attribute argument means it.
[[nodiscard]] TemplateValue get_path(TemplateMeter& meter, const TemplateValue& object, const TemplateValue& path);
// a + b as Python adds: numbers, strings, lists, tuples.
[[nodiscard]] TemplateValue add_values(const TemplateValue& a, const TemplateValue& b);
// Python's str(), charged for.
[[nodiscard]] std::string printed(TemplateMeter& meter, const TemplateValue& value);

}  // namespace hone

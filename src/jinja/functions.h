// Filters, tests and methods that chat templates may call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace hone {

// Limits the work of one rendering. Throws TemplateFailure when the limit is exceeded.
class TemplateBudget {
 public:
  void step() { charge(1); }
  // Charges work or memory in proportion to `bytes`.
  void charge_bytes(std::uint64_t bytes) { charge(1 + bytes / 32); }
  // Charges `times` times as much.
  void charge_bytes(std::uint64_t bytes, std::uint64_t times) {
    if (__builtin_mul_overflow(bytes, times, &bytes)) bytes = UINT64_MAX;
    charge_bytes(bytes);
  }
  // Charges a search for `wanted` in `text`.
  void charge_search(std::string_view text, std::string_view wanted) {
    charge_bytes(text.size(), 1 + wanted.size() / 64);
  }
  void charge_comparison(const TemplateValue& a, const TemplateValue& b) {
    charge_bytes(std::min(a.shape().size, b.shape().size));
  }
  // Charges `item in container`.
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

// The arguments of a call. A function reads each argument once by its position and name; `finish` then rejects
// arguments that were not read.
class TemplateArguments {
 public:
  std::vector<TemplateValue> positional;
  std::vector<std::pair<std::string, TemplateValue>> named;

  [[nodiscard]] const TemplateValue* find(std::size_t place, std::string_view name);
  [[nodiscard]] TemplateValue get(std::size_t place, std::string_view name, TemplateValue fallback);
  [[nodiscard]] TemplateValue get_named(std::string_view name, TemplateValue fallback);  // keyword-only
  [[nodiscard]] std::string get_text(std::size_t place, std::string_view name, std::string_view fallback);
  [[nodiscard]] std::int64_t get_integer(std::size_t place, std::string_view name, std::int64_t fallback);
  [[nodiscard]] bool get_bool(std::size_t place, std::string_view name, bool fallback);
  // Return the arguments that were not read: a tuple of positional ones, and a dict of named ones.
  [[nodiscard]] TemplateValue take_rest();
  [[nodiscard]] TemplateValue take_named_rest();
  // Throws TemplateFailure if an argument was not read.
  void finish(std::string_view function) const;

 private:
  std::size_t used_positional_ = 0;
  std::vector<std::string> used_named_;
};

// The functions below throw TemplateFailure on an error.
[[nodiscard]] TemplateValue apply_filter(TemplateBudget& meter, std::string_view name, const TemplateValue& subject,
                                         TemplateArguments& arguments);
[[nodiscard]] bool apply_test(TemplateBudget& meter, std::string_view name, const TemplateValue& subject,
                              TemplateArguments& arguments);
[[nodiscard]] bool has_filter(std::string_view name);
[[nodiscard]] bool has_test(std::string_view name);
[[nodiscard]] bool has_method(const TemplateValue& self, std::string_view name);
[[nodiscard]] TemplateValue call_method(TemplateBudget& meter, const TemplateValue& self, std::string_view name,
                                        TemplateArguments& arguments);

// object.name and object[key] as Jinja resolves them; Undefined if there is no such item.
[[nodiscard]] TemplateValue get_attribute(const TemplateValue& object, std::string_view name);
[[nodiscard]] TemplateValue get_item(TemplateBudget& meter, const TemplateValue& object, const TemplateValue& key);
// Value at a path "a.b.0", as in the filters' attribute argument.
[[nodiscard]] TemplateValue get_path(TemplateBudget& meter, const TemplateValue& object, const TemplateValue& path);
// a + b with Python's meaning: numbers, strings, lists, tuples.
[[nodiscard]] TemplateValue add_values(const TemplateValue& a, const TemplateValue& b);
// Python's str() of a value, with its cost charged.
[[nodiscard]] std::string printed(TemplateBudget& meter, const TemplateValue& value);

}  // namespace hone

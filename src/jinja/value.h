// The values of a chat template: Python's, as far as templates see them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"

namespace hone {

class TemplateValue;
struct Macro;  // renderer.cpp
struct LoopState;
struct Statement;
struct TemplateScope;

// What failed, without a place: the renderer adds the line.
class TemplateFailure {
 public:
  explicit TemplateFailure(std::string what) : what_(std::move(what)) {}
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  std::string what_;
};

struct Undefined {
  std::string name;  // "'tools'" or "'dict object' has no attribute 'x'": for errors
};
struct None {};
// Of a list or dict, so that values stay shallow enough to walk and form no cycles. Values are shared: `size` is what a
// walk over all of it costs, as bytes of text, and may be far more than the memory (or the largest number).
struct Shape {
  int depth = 1;
  std::uint64_t size = 32;
  bool holds_reference = false;  // a namespace, function or loop somewhere within
};
struct ListData {
  std::vector<TemplateValue> items;
  bool is_tuple = false;
  Shape shape;
  bool is_group = false;  // of groupby: a tuple whose items are also called grouper and list
};
struct DictData {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;  // in order of insertion
  Shape shape;                                                 // set when it becomes a TemplateValue
  [[nodiscard]] const TemplateValue* find(const TemplateValue& key) const;
  [[nodiscard]] const TemplateValue* find(std::string_view key) const;
  void set(const TemplateValue& key, const TemplateValue& value);
};
// The one thing that a template can change; it holds no references.
struct NamespaceData {
  DictData fields;
};
// A function of the environment, a method bound to its object, or a macro.
struct CallableData;

class TemplateValue {
 public:
  using String = std::shared_ptr<const std::string>;
  using List = std::shared_ptr<const ListData>;
  using Dict = std::shared_ptr<const DictData>;
  using Namespace = std::shared_ptr<NamespaceData>;
  using Callable = std::shared_ptr<const CallableData>;
  using Loop = std::shared_ptr<LoopState>;

  TemplateValue() : data_(Undefined{}) {}
  TemplateValue(None) : data_(None{}) {}
  TemplateValue(Undefined value) : data_(std::move(value)) {}
  TemplateValue(bool value) : data_(value) {}
  TemplateValue(std::int64_t value) : data_(value) {}
  TemplateValue(double value) : data_(value) {}
  TemplateValue(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  TemplateValue(std::string_view value) : TemplateValue(std::string(value)) {}
  TemplateValue(const char* value) : TemplateValue(std::string(value)) {}
  TemplateValue(Namespace value) : data_(std::move(value)) {}
  TemplateValue(Callable value) : data_(std::move(value)) {}
  TemplateValue(Loop value) : data_(std::move(value)) {}
  // These throw TemplateFailure where they would nest too deep.
  [[nodiscard]] static TemplateValue list(std::vector<TemplateValue> items);
  [[nodiscard]] static TemplateValue tuple(std::vector<TemplateValue> items);
  [[nodiscard]] static TemplateValue group(TemplateValue grouper, TemplateValue items);
  [[nodiscard]] static TemplateValue dict(DictData items);
  // Throws TemplateFailure for what templates cannot hold (integers over 64 bits, nesting too deep).
  [[nodiscard]] static TemplateValue from_json(const Json& json);

  template <class T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  [[nodiscard]] const T& as() const {
    return std::get<T>(data_);
  }
  [[nodiscard]] bool is_undefined() const { return is<Undefined>(); }
  [[nodiscard]] bool is_string() const { return is<String>(); }
  [[nodiscard]] const std::string& text() const { return *as<String>(); }
  [[nodiscard]] bool is_list() const { return is<List>(); }  // or a tuple
  [[nodiscard]] const std::vector<TemplateValue>& items() const { return as<List>()->items; }
  [[nodiscard]] bool is_dict() const { return is<Dict>(); }
  [[nodiscard]] const DictData& dict_data() const { return *as<Dict>(); }
  [[nodiscard]] bool is_integral() const { return is<std::int64_t>() || is<bool>(); }
  [[nodiscard]] bool is_number() const { return is_integral() || is<double>(); }
  [[nodiscard]] std::int64_t integer() const;  // of an integral
  [[nodiscard]] double number() const;         // of a number

  [[nodiscard]] Shape shape() const;
  [[nodiscard]] bool truthy() const;
  [[nodiscard]] const char* type_name() const;  // Python's

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, String, List, Dict, Namespace, Callable, Loop> data_;
};

struct CallableData {
  std::string name;
  TemplateValue self;                  // of a method
  std::shared_ptr<const Macro> macro;  // of a macro
};

struct LoopState {
  std::vector<TemplateValue> items;
  std::size_t index = 0;
  std::vector<TemplateValue> last_changed;  // the arguments of the last loop.changed(); empty before
  // Of a recursive loop, which can be called with other items: its statement and the scope around it.
  const Statement* recursive = nullptr;
  std::weak_ptr<TemplateScope> scope;
  int depth0 = 0;  // calls that this one is within
};

[[nodiscard]] bool equal(const TemplateValue& a, const TemplateValue& b);
// a < b for numbers, strings and lists. Throws TemplateFailure for others.
[[nodiscard]] bool less(const TemplateValue& a, const TemplateValue& b);
[[nodiscard]] bool contains(const TemplateValue& container, const TemplateValue& item);
[[nodiscard]] std::int64_t length(const TemplateValue& value);
// The items that a loop sees: of a list, the keys of a dict, the characters of a string; none of Undefined.
[[nodiscard]] std::vector<TemplateValue> iterate(const TemplateValue& value);
[[nodiscard]] std::string to_text(const TemplateValue& value);  // Python's str()
[[nodiscard]] std::string to_repr(const TemplateValue& value);  // Python's repr()

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // a level's; none: all on one line
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
[[nodiscard]] std::string to_json_text(const TemplateValue& value, const JsonStyle& style);  // Python's json.dumps

}  // namespace hone

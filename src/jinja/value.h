// Values of a chat template: Python's types, as far as templates use them.
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

// An error message without a location; the renderer adds the line.
class TemplateFailure {
 public:
  explicit TemplateFailure(std::string what) : what_(std::move(what)) {}
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  std::string what_;
};

struct Undefined {
  std::string name;  // text for errors: "'tools'" or "'dict object' has no attribute 'x'"
};
struct None {};
// Properties of a list or dict that keep values shallow enough to traverse and free of cycles. `size` is the cost of
// traversing the whole value, as bytes of text; values are shared, so it may far exceed the memory in use (it saturates
// at the largest number).
struct Shape {
  int depth = 1;
  std::uint64_t size = 32;
  bool holds_reference = false;  // it contains a namespace, function or loop at some depth
};
struct ListData {
  std::vector<TemplateValue> items;
  bool is_tuple = false;
  Shape shape;
  bool is_group = false;  // result of groupby: a tuple whose items are also available as grouper and list
};
struct DictData {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;  // in order of insertion
  Shape shape;                                                 // set when the dict becomes a TemplateValue
  [[nodiscard]] const TemplateValue* find(const TemplateValue& key) const;
  [[nodiscard]] const TemplateValue* find(std::string_view key) const;
  void set(const TemplateValue& key, const TemplateValue& value);
};
// The only mutable value. It contains no references to namespaces, functions or loops.
struct NamespaceData {
  DictData fields;
};
// A global function, a method bound to its object, or a macro.
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
  // Throw TemplateFailure if the result is nested too deep.
  [[nodiscard]] static TemplateValue list(std::vector<TemplateValue> items);
  [[nodiscard]] static TemplateValue tuple(std::vector<TemplateValue> items);
  [[nodiscard]] static TemplateValue group(TemplateValue grouper, TemplateValue items);
  [[nodiscard]] static TemplateValue dict(DictData items);
  // Throws TemplateFailure for data that templates cannot represent (integers over 64 bits, too deep nesting).
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
  [[nodiscard]] bool is_list() const { return is<List>(); }  // or tuple
  [[nodiscard]] const std::vector<TemplateValue>& items() const { return as<List>()->items; }
  [[nodiscard]] bool is_dict() const { return is<Dict>(); }
  [[nodiscard]] const DictData& dict_data() const { return *as<Dict>(); }
  [[nodiscard]] bool is_integral() const { return is<std::int64_t>() || is<bool>(); }
  [[nodiscard]] bool is_number() const { return is_integral() || is<double>(); }
  [[nodiscard]] std::int64_t integer() const;  // requires is_integral()
  [[nodiscard]] double number() const;         // requires is_number()

  [[nodiscard]] Shape shape() const;
  [[nodiscard]] bool truthy() const;
  [[nodiscard]] const char* type_name() const;  // as in Python

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, String, List, Dict, Namespace, Callable, Loop> data_;
};

struct CallableData {
  std::string name;
  TemplateValue self;                  // the object, if this is a method
  std::shared_ptr<const Macro> macro;  // set if this is a macro
};

struct LoopState {
  std::vector<TemplateValue> items;
  std::size_t index = 0;
  std::vector<TemplateValue> last_changed;  // arguments of the last loop.changed(); empty before the first
  // Only for a recursive loop, which can be called with other items: its statement and the scope around it.
  const Statement* recursive = nullptr;
  std::weak_ptr<TemplateScope> scope;
  int depth0 = 0;  // number of calls of this loop around this one
};

[[nodiscard]] bool equal(const TemplateValue& a, const TemplateValue& b);
// Returns a < b for numbers, strings and lists. Throws TemplateFailure for other types.
[[nodiscard]] bool less(const TemplateValue& a, const TemplateValue& b);
[[nodiscard]] bool contains(const TemplateValue& container, const TemplateValue& item);
[[nodiscard]] std::int64_t length(const TemplateValue& value);
// Items that a loop iterates over: items of a list, keys of a dict, characters of a string; none for Undefined.
[[nodiscard]] std::vector<TemplateValue> iterate(const TemplateValue& value);
[[nodiscard]] std::string to_text(const TemplateValue& value);  // Python's str()
[[nodiscard]] std::string to_repr(const TemplateValue& value);  // Python's repr()

// Options of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // indentation of one level; nullopt: everything on one line
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
[[nodiscard]] std::string to_json_text(const TemplateValue& value, const JsonStyle& style);  // Python's json.dumps

}  // namespace hone

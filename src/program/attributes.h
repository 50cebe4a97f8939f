// Attributes of operations. Each operation defines a struct of its attributes with
//
//   template <class Visitor> void fields(Visitor& v) { v("epsilon", epsilon); ... }
//
// from which printing, parsing and comparison follow. The types of fields are bool, int64_t, double and std::string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "core/error.h"

namespace hone {

struct NoAttributes {
  template <class Visitor>
  void fields(Visitor&) {}
};

// Convert one field to text and back. The text is exact: parsing it returns the same bits. Parsing throws Error.
[[nodiscard]] std::string field_to_text(bool value);
[[nodiscard]] std::string field_to_text(std::int64_t value);
[[nodiscard]] std::string field_to_text(double value);
[[nodiscard]] std::string field_to_text(const std::string& value);
void field_from_text(std::string_view text, bool& value);
void field_from_text(std::string_view text, std::int64_t& value);
void field_from_text(std::string_view text, double& value);
void field_from_text(std::string_view text, std::string& value);

// Type-erased attribute struct, immutable; copies share one object.
class Attributes {
 public:
  Attributes() : Attributes(NoAttributes{}) {}
  template <class T>
    requires(!std::is_same_v<T, Attributes>)
  Attributes(T value) : holder_(std::make_shared<const Holder<T>>(std::move(value))) {}  // NOLINT: meant to convert

  // Returns the struct; throws Defect if it is of another type.
  template <class T>
  [[nodiscard]] const T& as() const {
    const auto* holder = dynamic_cast<const Holder<T>*>(holder_.get());
    HONE_ASSERT(holder != nullptr, "attributes are not of type ", typeid(T).name());
    return holder->value;
  }
  // Prints "epsilon=1e-06, causal=true". Two structs of one type are equal if and only if their texts are.
  [[nodiscard]] std::string to_text() const { return holder_->to_text(); }
  // Returns a copy in which the fields named in `text` are replaced. Throws Error for an unknown field or a bad value.
  [[nodiscard]] Attributes from_text(std::string_view text) const { return Attributes(holder_->from_text(text)); }

 private:
  struct HolderBase {
    virtual ~HolderBase() = default;
    [[nodiscard]] virtual std::string to_text() const = 0;
    [[nodiscard]] virtual std::shared_ptr<const HolderBase> from_text(std::string_view text) const = 0;
  };
  template <class T>
  struct Holder;
  explicit Attributes(std::shared_ptr<const HolderBase> holder) : holder_(std::move(holder)) {}

  std::shared_ptr<const HolderBase> holder_;
};

// One entry "name=value" of the text of attributes.
struct AttributeText {
  std::string name;
  std::string value;
};
[[nodiscard]] std::vector<AttributeText> split_attributes(std::string_view text);

template <class T>
struct Attributes::Holder final : Attributes::HolderBase {
  explicit Holder(T value_) : value(std::move(value_)) {}

  std::string to_text() const override {
    std::string text;
    auto print = [&text](std::string_view name, const auto& field) {
      if (!text.empty()) text.append(", ");
      text.append(name).append("=").append(field_to_text(field));
    };
    T copy = value;
    copy.fields(print);
    return text;
  }

  std::shared_ptr<const HolderBase> from_text(std::string_view text) const override {
    T copy = value;
    for (const AttributeText& entry : split_attributes(text)) {
      bool found = false;
      auto assign = [&](std::string_view name, auto& field) {
        if (name != entry.name) return;
        field_from_text(entry.value, field);
        found = true;
      };
      copy.fields(assign);
      if (!found) throw Error(text_of("unknown attribute '", entry.name, "'"));
    }
    return std::make_shared<const Holder<T>>(std::move(copy));
  }

  T value;
};

}  // namespace hone

// The attributes of an operation: one struct an operation, with
//
//   template <class Visitor> void fields(Visitor& v) { v("epsilon", epsilon); ... }
//
// which serves printing, parsing and comparison. Fields: bool, int64_t, double, std::string.
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

// Text of one field; exact: parsing gives the same bits back.
[[nodiscard]] std::string field_to_text(bool value);
[[nodiscard]] std::string field_to_text(std::int64_t value);
[[nodiscard]] std::string field_to_text(double value);
[[nodiscard]] std::string field_to_text(const std::string& value);
void field_from_text(std::string_view text, bool& value);
void field_from_text(std::string_view text, std::int64_t& value);
void field_from_text(std::string_view text, double& value);
void field_from_text(std::string_view text, std::string& value);

// An attribute struct of any type, immutable and shared.
class Attributes {
 public:
  Attributes() : Attributes(NoAttributes{}) {}
  template <class T>
    requires(!std::is_same_v<T, Attributes>)
  Attributes(T value) : holder_(std::make_shared<const Holder<T>>(std::move(value))) {}  // NOLINT: meant to convert

  template <class T>
  [[nodiscard]] const T& as() const {
    const auto* holder = dynamic_cast<const Holder<T>*>(holder_.get());
    HONE_ASSERT(holder != nullptr, "attributes are not of type ", typeid(T).name());
    return holder->value;
  }
  // "epsilon=1e-06, causal=true"; equal structs have equal texts.
  [[nodiscard]] std::string to_text() const { return holder_->to_text(); }
  // A struct of the same type with the fields that `text` names changed. Throws Error at an unknown field.
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

// One "name=value" of an attribute list.
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

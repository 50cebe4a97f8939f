// Collects structs of options whose types are known only at run time: those that registered rewards and trackers
// declare.
#pragma once

#include <memory>
#include <vector>

#include "core/error.h"
#include "core/options.h"

namespace hone {

// Owns at most one struct of each type. It has fields() itself, so that an OptionTable accepts it like any struct of
// options (core/options.h). Copies are deep.
class OptionSet {
 public:
  OptionSet() = default;
  OptionSet(const OptionSet& other) { add(other); }
  OptionSet& operator=(const OptionSet& other);
  OptionSet(OptionSet&&) noexcept = default;
  OptionSet& operator=(OptionSet&&) noexcept = default;
  ~OptionSet() = default;

  // Returns a set of these types with their default values.
  template <class... Options>
  [[nodiscard]] static OptionSet of() {
    OptionSet set;
    (set.held_.push_back(std::make_unique<Held<Options>>()), ...);
    return set;
  }
  // Copies those structs of `other` whose types this set does not hold yet.
  void add(const OptionSet& other);
  // Returns the struct of this type; throws Defect if the set holds none.
  template <class Options>
  [[nodiscard]] const Options& get() const {
    for (const auto& each : held_) {
      if (const auto* held = dynamic_cast<const Held<Options>*>(each.get())) return held->options;
    }
    throw Defect("OptionSet::get: the set holds no struct of the requested type");
  }
  // Declares the options of all structs, in the order in which these were added.
  void fields(OptionTable& table) {
    for (const auto& each : held_) each->fields(table);
  }

 private:
  struct HeldBase {
    virtual ~HeldBase() = default;
    [[nodiscard]] virtual std::unique_ptr<HeldBase> copy() const = 0;
    virtual void fields(OptionTable& table) = 0;
  };
  template <class Options>
  struct Held final : HeldBase {
    [[nodiscard]] std::unique_ptr<HeldBase> copy() const override { return std::make_unique<Held>(*this); }
    void fields(OptionTable& table) override { options.fields(table); }
    Options options;
  };

  std::vector<std::unique_ptr<HeldBase>> held_;
};

}  // namespace hone

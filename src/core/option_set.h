// Structs of options that are known only when the program runs: those that folders declare for themselves.
#pragma once

#include <memory>
#include <vector>

#include "core/error.h"
#include "core/options.h"

namespace hone {

// At most one struct of each type, with fields() as any struct of options (core/options.h). A copy holds copies of all.
class OptionSet {
 public:
  OptionSet() = default;
  OptionSet(const OptionSet& other) { add(other); }
  OptionSet& operator=(const OptionSet& other);
  OptionSet(OptionSet&&) noexcept = default;
  OptionSet& operator=(OptionSet&&) noexcept = default;
  ~OptionSet() = default;

  // The structs of these types, with their defaults.
  template <class... Options>
  [[nodiscard]] static OptionSet of() {
    OptionSet set;
    (set.held_.push_back(std::make_unique<Held<Options>>()), ...);
    return set;
  }
  // Adds copies of the structs whose types this set does not hold.
  void add(const OptionSet& other);
  // The set must hold one.
  template <class Options>
  [[nodiscard]] const Options& get() const {
    for (const auto& each : held_) {
      if (const auto* held = dynamic_cast<const Held<Options>*>(each.get())) return held->options;
    }
    throw Defect("an OptionSet lacks a struct that is read from it");
  }
  // As any struct of options has it: the fields of all, in the order in which they were added.
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

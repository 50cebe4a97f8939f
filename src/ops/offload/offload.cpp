#include "ops/offload/offload.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

// (x, home) -> home, in place: starts the copy (offload) or waits for it (offload_wait).
class Offload final : public Op {
 public:
  explicit Offload(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return OffloadAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, OffloadIn::x, name_);
    const Type& home = required(inputs, OffloadIn::home, name_);
    expect(x == home, name_, text_of("x is ", to_text(x), ", but home is ", to_text(home)));
    return {home};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return OffloadIn::home; }

 private:
  std::string_view name_;
};

// home -> x
class Fetch final : public Op {
 public:
  std::string_view name() const override { return "offload_fetch"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return OffloadAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
};

// x -> x, in place
class FetchWait final : public Op {
 public:
  std::string_view name() const override { return "offload_fetch_wait"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return OffloadAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
  Cost cost(InputTypes, std::span<const Type>, const Attributes&) const override { return {}; }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
};

const Offload kOffload("offload");
const Offload kOffloadWait("offload_wait");
const Fetch kFetch;
const FetchWait kFetchWait;

}  // namespace

Tensor offload(Tensor x, Tensor home, std::int64_t slot) {
  return x.program().append1(kOffload, OffloadAttributes{slot}, {x, home});
}
Tensor offload_wait(Tensor x, Tensor home, std::int64_t slot) {
  return x.program().append1(kOffloadWait, OffloadAttributes{slot}, {x, home});
}
Tensor fetch(Tensor home, std::int64_t slot) { return home.program().append1(kFetch, OffloadAttributes{slot}, {home}); }
Tensor fetch_wait(Tensor x, std::int64_t slot) { return x.program().append1(kFetchWait, OffloadAttributes{slot}, {x}); }

void register_offload(OpRegistry& registry) {
  registry.add(kOffload);
  registry.add(kOffloadWait);
  registry.add(kFetch);
  registry.add(kFetchWait);
}

}  // namespace hone

#include "ops/gather_rows/gather_rows.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

class GatherRows final : public Op {
 public:
  std::string_view name() const override { return "gather_rows"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, GatherRowsIn::x, name());
    const Type& index = required(inputs, GatherRowsIn::index, name());
    expect(x.shape.size() == 2 && index.dtype == DType::kI32 && index.shape.size() == 1, name(),
           text_of("x is ", to_text(x), ", index ", to_text(index), "; expected [rows, n] and i32[samples]"));
    return {Type{x.dtype, {index.shape[0], x.shape[1]}}};
  }
  // Only the rows that are picked are read.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    return {.bytes_read = bytes + static_cast<double>(required(inputs, GatherRowsIn::index, name()).bytes()),
            .bytes_written = bytes};
  }
};

const GatherRows kGatherRows;

}  // namespace

Tensor gather_rows(Tensor x, Tensor index) { return x.program().append1(kGatherRows, {}, {x, index}); }

void register_gather_rows(OpRegistry& registry) { registry.add(kGatherRows); }

}  // namespace hone

#include <string_view>

#include "backend/cpu/gemm.h"
#include "ops/accumulated.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/products.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

constexpr std::string_view kGroupedLinear = "grouped_linear";

std::int64_t experts_of(const Attributes& attributes) { return attributes.as<GroupedLinearAttributes>().experts; }

// The type of one expert's matrix in a block of all.
Type grouped_matrix_of(const Type& weight, std::int64_t experts) {
  return {weight.dtype, {weight.shape[0].size / experts, weight.shape[1]}};
}

GemmArgs grouped_linear_forward_product(InputTypes inputs, std::span<const Type> outputs,
                                        const Attributes& attributes) {
  return linear_product(
      required(inputs, GroupedLinearIn::x, kGroupedLinear),
      grouped_matrix_of(required(inputs, GroupedLinearIn::weight, kGroupedLinear), experts_of(attributes)), outputs[0]);
}

GemmArgs grouped_linear_input_product(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  return linear_input_product(
      required(inputs, GroupedLinearInputGradientIn::dy, kGroupedLinear),
      grouped_matrix_of(required(inputs, GroupedLinearInputGradientIn::weight, kGroupedLinear), experts_of(attributes)),
      outputs[0]);
}

GemmArgs grouped_linear_weight_product(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  return linear_weight_product(required(inputs, GroupedLinearWeightGradientIn::dy, kGroupedLinear),
                               required(inputs, GroupedLinearWeightGradientIn::x, kGroupedLinear),
                               grouped_matrix_of(outputs[0], experts_of(attributes)));
}

template <auto product>
std::size_t grouped_linear_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  return gemm_workspace_bytes(product(inputs, outputs, attributes), thread_count());
}

// Bytes before a row of a matrix.
std::size_t bytes_before(const TensorView& view, std::int64_t row) {
  return static_cast<std::size_t>(row * view.row_size()) * size_of(view.dtype());
}

// The GEMM of `product` for each expert that has rows; `place(args, e, first, rows)` sets its operands.
template <class Place>
void for_grouped_experts(const KernelCall& call, GemmArgs args, const TensorView& start, const Place& place) {
  const auto* starts = start.as<std::int32_t>();
  args.workspace = call.workspace;
  for (std::int64_t e = 0; e + 1 < start.capacity(); ++e) {
    if (starts[e + 1] == starts[e]) continue;
    place(args, e, starts[e], starts[e + 1] - starts[e]);
    gemm(args);
  }
}

// Multiplies the rows of each expert by its matrix; rows past the count become zero.
void multiply_rows(const KernelCall& call, const GemmArgs& product, const TensorView& rows, const TensorView& weight,
                   const TensorView& start) {
  const std::int64_t height = weight.capacity() / experts_of(*call.attributes);
  for_grouped_experts(call, product, start,
                      [&](GemmArgs& args, std::int64_t e, std::int64_t first, std::int64_t count) {
                        args.m = count;
                        args.a = rows.data + bytes_before(rows, first);
                        args.b = weight.data + bytes_before(weight, e * height);
                        args.c = call.out(0).data + bytes_before(call.out(0), first);
                      });
  zero_tail(call.out(0));
}

void grouped_linear_forward(const KernelCall& call) {
  const TensorView& x = call.in(GroupedLinearIn::x);
  const TensorView& weight = call.in(GroupedLinearIn::weight);
  const Type matrix = grouped_matrix_of(*weight.type, experts_of(*call.attributes));
  multiply_rows(call, linear_product(*x.type, matrix, *call.out(0).type), x, weight, call.in(GroupedLinearIn::start));
}

void grouped_linear_input_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GroupedLinearInputGradientIn::dy);
  const TensorView& weight = call.in(GroupedLinearInputGradientIn::weight);
  const Type matrix = grouped_matrix_of(*weight.type, experts_of(*call.attributes));
  multiply_rows(call, linear_input_product(*dy.type, matrix, *call.out(0).type), dy, weight,
                call.in(GroupedLinearInputGradientIn::start));
}

void grouped_linear_weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GroupedLinearWeightGradientIn::dy);
  const TensorView& x = call.in(GroupedLinearWeightGradientIn::x);
  const TensorView& dweight = call.out(0);
  const Type matrix = grouped_matrix_of(*dweight.type, experts_of(*call.attributes));
  GemmArgs args = linear_weight_product(*dy.type, *x.type, matrix);
  args.workspace = call.workspace;
  const auto* starts = call.in(GroupedLinearWeightGradientIn::start).as<std::int32_t>();
  args.accumulate = adds_to_gradient(call, GroupedLinearWeightGradientIn::accumulated);
  for (std::int64_t e = 0; e < experts_of(*call.attributes); ++e) {
    args.k = starts[e + 1] - starts[e];
    args.a = dy.data + bytes_before(dy, starts[e]);
    args.b = x.data + bytes_before(x, starts[e]);
    args.c = dweight.data + bytes_before(dweight, e * matrix.rows());
    if (args.k > 0 || !args.accumulate) gemm(args);
  }
}

}  // namespace

void register_grouped_linear_cpu(KernelRegistry& registry) {
  registry.add("grouped_linear", DeviceKind::kCpu,
               {grouped_linear_forward, grouped_linear_workspace<grouped_linear_forward_product>});
  registry.add("grouped_linear_input_gradient", DeviceKind::kCpu,
               {grouped_linear_input_gradient, grouped_linear_workspace<grouped_linear_input_product>});
  registry.add("grouped_linear_weight_gradient", DeviceKind::kCpu,
               {grouped_linear_weight_gradient, grouped_linear_workspace<grouped_linear_weight_product>});
}

}  // namespace hone

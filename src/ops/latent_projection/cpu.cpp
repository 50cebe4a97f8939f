#include <algorithm>

#include "backend/cpu/gemm.h"
#include "ops/latent_projection/latent_projection.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// The product of one head, whose x, weight and result begin at the tensors' first elements.
GemmArgs query_product(const Type& query, const Type& up, const LatentHeadsAttributes& a) {
  const std::int64_t rank = up.shape[1].size;
  return {.m = query.rows(),
          .n = rank,
          .k = a.nope_dim,
          .a_type = query.dtype,
          .b_type = up.dtype,
          .c_type = query.dtype,
          .lda = a.query_width(),
          .ldb = rank,
          .ldc = a.heads * (rank + a.rope_dim)};
}
GemmArgs value_product(const Type& latents, const Type& up, const LatentHeadsAttributes& a) {
  const std::int64_t rank = up.shape[1].size;
  return {.m = latents.rows(),
          .n = a.value_dim,
          .k = rank,
          .transpose_b = Transpose::kYes,
          .a_type = latents.dtype,
          .b_type = up.dtype,
          .c_type = latents.dtype,
          .lda = a.heads * rank,
          .ldb = rank,
          .ldc = a.heads * a.value_dim};
}

// Multiplies head by head; from one to the next x advances by x_step elements, the result by y_step. The head's weight
// begins `first` rows after its first one.
template <class T>
void multiply_heads(const KernelCall& call, GemmArgs args, std::int64_t x_step, std::int64_t first,
                    std::int64_t y_step) {
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& x = call.in(LatentProjectionIn::x);
  const TensorView& up = call.in(LatentProjectionIn::up);
  args.m = x.rows();
  args.workspace = call.workspace;
  for (std::int64_t head = 0; head < a.heads; ++head) {
    args.a = x.as<T>() + head * x_step;
    args.b = up.as<T>() + (head * (a.nope_dim + a.value_dim) + first) * up.row_size();
    args.c = call.out(0).as<T>() + head * y_step;
    gemm(args);
  }
  zero_tail(call.out(0));
}

template <class T>
void project_queries(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& query = call.in(LatentProjectionIn::x);
  const TensorView& up = call.in(LatentProjectionIn::up);
  const std::int64_t rank = up.row_size();
  const std::int64_t width = rank + a.rope_dim;
  multiply_heads<T>(call, query_product(*query.type, *up.type, a), a.head_dim(), 0, width);
  for_rows(query.rows() * a.heads, a.rope_dim, [&](std::int64_t row) {
    std::copy_n(query.as<T>() + row * a.head_dim() + a.nope_dim, a.rope_dim, call.out(0).as<T>() + row * width + rank);
  });
}

template <class T>
void project_values(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& latents = call.in(LatentProjectionIn::x);
  const TensorView& up = call.in(LatentProjectionIn::up);
  multiply_heads<T>(call, value_product(*latents.type, *up.type, a), up.row_size(), a.nope_dim, a.value_dim);
}

template <auto product>
std::size_t projection_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  return gemm_workspace_bytes(
      product(required(inputs, LatentProjectionIn::x, "latent_projection"),
              required(inputs, LatentProjectionIn::up, "latent_projection"), attributes.as<LatentHeadsAttributes>()),
      thread_count());
}

}  // namespace

void register_latent_projection_cpu(KernelRegistry& registry) {
  registry.add(
      "latent_projection_queries", DeviceKind::kCpu,
      {[](const KernelCall& call) { for_floating(call.out(0).dtype(), [&]<class T>() { project_queries<T>(call); }); },
       projection_workspace<query_product>});
  registry.add(
      "latent_projection_values", DeviceKind::kCpu,
      {[](const KernelCall& call) { for_floating(call.out(0).dtype(), [&]<class T>() { project_values<T>(call); }); },
       projection_workspace<value_product>});
}

}  // namespace hone

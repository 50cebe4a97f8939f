#include "program/test_ops.h"

#include <cstring>

#include "program/kernel.h"

namespace hone::test {
namespace {

struct MixAttributes {
  std::int64_t size = 0;
  std::int64_t workspace = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("size", size);
    v("workspace", workspace);
  }
};

class Mix final : public Op {
 public:
  std::string_view name() const override { return "test_mix"; }
  OpCategory category() const override { return OpCategory::kOther; }
  Attributes default_attributes() const override { return MixAttributes{}; }
  std::vector<Type> infer(InputTypes, const Attributes& attributes) const override {
    return {Type{DType::kU8, {attributes.as<MixAttributes>().size}}};
  }
};

class MixInPlace final : public Op {
 public:
  std::string_view name() const override { return "test_mix_in_place"; }
  OpCategory category() const override { return OpCategory::kOther; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
};

class ViewAsColumn final : public Op {
 public:
  std::string_view name() const override { return "test_view_as_column"; }
  OpCategory category() const override { return OpCategory::kOther; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, 0, name());
    return {Type{x.dtype, {x.elements(), 1}}};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
  bool is_view() const override { return true; }
};

const Mix kMix;
const MixInPlace kMixInPlace;
const ViewAsColumn kViewAsColumn;

std::span<std::uint8_t> bytes_of(const TensorView& view) {
  return {reinterpret_cast<std::uint8_t*>(view.data), static_cast<std::size_t>(view.elements())};
}

std::uint32_t digest(std::uint32_t state, std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) state = (state ^ byte) * 16777619u;
  return state;
}

// Writes output and workspace before it reads the inputs, so that memory shared by mistake changes the result.
void run_mix(const KernelCall& call) {
  const std::span<std::uint8_t> out = bytes_of(call.out(0));
  if (!out.empty()) std::memset(out.data(), 0xA5, out.size());
  if (!call.workspace.empty()) std::memset(call.workspace.data(), 0x5A, call.workspace.size());
  std::uint32_t state = 2166136261u;
  for (const TensorView& input : call.inputs) state = digest(state, bytes_of(input));
  for (const std::byte byte : call.workspace) state += static_cast<std::uint32_t>(byte != std::byte{0x5A});
  for (std::size_t i = 0; i < out.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    out[i] = static_cast<std::uint8_t>(state >> 24);
  }
}

void run_mix_in_place(const KernelCall& call) {
  const std::uint32_t state = digest(2166136261u, bytes_of(call.in(1)));
  for (std::uint8_t& byte : bytes_of(call.out(0))) byte = static_cast<std::uint8_t>(byte * 31 + (state >> 16));
}

void register_kernels() {
  static const bool once = [] {
    kernel_registry().add("test_mix", DeviceKind::kCpu,
                          {run_mix, [](InputTypes, std::span<const Type>, const Attributes& attributes) {
                             return static_cast<std::size_t>(attributes.as<MixAttributes>().workspace);
                           }});
    kernel_registry().add("test_mix_in_place", DeviceKind::kCpu, {run_mix_in_place, {}});
    return true;
  }();
  (void)once;
}

}  // namespace

Tensor mix(Program& program, std::span<const Tensor> inputs, std::int64_t size, std::int64_t workspace) {
  register_kernels();
  return program.append(kMix, MixAttributes{.size = size, .workspace = workspace}, inputs)[0];
}

Tensor mix_in_place(Tensor x, Tensor other) { return x.program().append1(kMixInPlace, {}, {x, other}); }

Tensor view_as_column(Tensor x) { return x.program().append1(kViewAsColumn, {}, {x}); }

}  // namespace hone::test

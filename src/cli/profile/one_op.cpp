#include "cli/profile/one_op.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"

namespace hone {
namespace {

// Total bytes of the operands of all copies, several times the L2 cache of a GPU.
constexpr std::size_t kRotation = std::size_t{256} << 20;
constexpr std::size_t kMostCopies = 16;
// Small enough that the logits of random activations and weights do not overflow in exp.
constexpr double kDeviation = 0.05;

std::string operand_name(std::size_t copy, std::size_t input) { return text_of("copy", copy, ".", input); }

bool is_wide_enough(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16; }

// Returns true for the second moments of AdamW, which must not be negative.
bool is_positive(const Value& value) { return value.name.ends_with("exp_avg_sq"); }

// Returns random second moments, normal(0, 1)^2 x 1e-4. Repeats 65,536 values to fill a large tensor quickly.
std::vector<std::byte> positive_values(const Type& type) {
  std::vector<std::byte> bytes(type.bytes());
  for_floating(type.dtype, [&]<class T>() {
    T* values = reinterpret_cast<T*>(bytes.data());
    const RandomStream random(1, "second moments");
    constexpr std::size_t kPeriod = 1 << 16;
    const std::size_t count = bytes.size() / sizeof(T);
    for (std::size_t i = 0; i < std::min(kPeriod, count); ++i) {
      const float normal = random.normal(i);
      values[i] = static_cast<T>(normal * normal * 1e-4f);
    }
    for (std::size_t i = kPeriod; i < count; ++i) values[i] = values[i - kPeriod];
  });
  return bytes;
}

const std::vector<std::int32_t>* integers_of(const HostBatch& batch, std::string_view name) {
  if (name == "tokens") return &batch.tokens;
  if (name == "targets") return &batch.targets;
  if (name == "positions") return &batch.positions;
  if (name == "cu_seqlens") return &batch.cu_seqlens;
  return nullptr;
}

}  // namespace

Work work_of(const Program& program, const Node& node, const HostBatch& batch) {
  const Cost cost = program.cost(node);
  double share = 1;  // pairs of tokens in the batch / pairs at full capacity
  if (batch.document_count() > 0) {
    const auto tokens = static_cast<double>(batch.token_count());
    double pairs = 0;
    for (std::size_t d = 0; d + 1 < batch.cu_seqlens.size(); ++d) {
      const auto length = static_cast<double>(batch.cu_seqlens[d + 1] - batch.cu_seqlens[d]);
      pairs += length * (length + 1) / 2;
    }
    share = pairs / (tokens * (tokens + 1) / 2);
  }
  return {.flops = cost.flops - cost.pair_flops * (1 - share), .bytes = cost.bytes_read + cost.bytes_written};
}

std::string shapes_of(const Program& program, const Node& node, std::size_t most) {
  std::string text;
  std::size_t shown = 0;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    if (++shown > most) return text + ", ...";
    text += (text.empty() ? "" : ", ") + to_text(program.value(id).type);
  }
  return text;
}

IsolatedOp::IsolatedOp(const Program& from, const Node& node, Device& device, const HostBatch& batch,
                       std::size_t copies)
    : device_(device), copies_(copies), arena_(std::make_shared<Arena>(device)) {
  register_operations();
  std::size_t bytes = 0;
  for (const std::vector<ValueId>& ids : {node.inputs, node.outputs}) {
    for (const ValueId id : ids) bytes += id == kNoValue ? 0 : from.value(id).type.bytes();
  }
  if (copies_ == 0) {
    const std::size_t wanted = kRotation / std::max<std::size_t>(bytes, 1) + 1;
    copies_ = device.kind() == DeviceKind::kCpu ? 1 : std::clamp(wanted, std::size_t{1}, kMostCopies);
  }
  std::vector<NamedType> types;
  for (std::size_t copy = 0; copy < copies_; ++copy) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) {
        inputs.emplace_back();
        continue;
      }
      const Type& type = from.value(node.inputs[i]).type;
      types.push_back({operand_name(copy, i), type});
      inputs.push_back(program_.weight(operand_name(copy, i), type));
    }
    const std::vector<Tensor> outputs = program_.append(*node.op, node.attributes, inputs);
    // Declaring the results as outputs keeps the memory planner from reusing their memory for the next copy.
    for (std::size_t i = 0; i < outputs.size(); ++i) program_.output(text_of("y", copy, ".", i), outputs[i]);
  }
  operands_ = TensorStore(device, types);
  fill(from, node, batch);
}

void IsolatedOp::fill(const Program& from, const Node& node, const HostBatch& batch) {
  Program program;
  for (std::size_t copy = 0; copy < copies_; ++copy) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const Value& value = from.value(node.inputs[i]);
      const std::string name = operand_name(copy, i);
      if (is_positive(value) && is_floating(value.type.dtype)) {
        operands_.upload(name, positive_values(value.type));
      } else if (is_wide_enough(value.type.dtype)) {
        const Tensor operand = program.weight(name, value.type);
        (void)normal_fill(operand, {.key = static_cast<std::int64_t>(RandomStream(1, name).key()),
                                    .deviation = kDeviation,
                                    .first = 0,
                                    .count = value.type.elements()});
      } else if (const std::vector<std::int32_t>* integers = integers_of(batch, value.name);
                 integers != nullptr && !integers->empty() && value.role == Role::kInput) {
        std::vector<std::int32_t> whole = *integers;  // padded with its last element to the full capacity
        whole.resize(static_cast<std::size_t>(value.type.elements()), integers->back());
        operands_.upload(name, std::as_bytes(std::span(whole)));
      }
    }
  }
  if (!program.nodes().empty()) {
    Executable(program, std::make_shared<Arena>(device_), {.weights = &operands_}).run();
  }
  device_.synchronize();
}

Executable IsolatedOp::executable() const { return {program_, arena_, {.weights = &operands_}}; }

}  // namespace hone

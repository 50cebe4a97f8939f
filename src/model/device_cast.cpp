#include "model/device_cast.h"

#include <algorithm>
#include <span>

#include "ops/cast/cast.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 22;  // elements
constexpr const char* kSource = "source";

Program cast_program(DType from, DType to) {
  register_operations();
  Program program;
  program.output("result", cast(program.weight(kSource, {from, {kPiece}}), to));
  return program;
}

TensorStore source_store(Device& device, DType dtype) {
  const NamedType type{kSource, {dtype, {kPiece}}};
  return {device, {&type, 1}};
}

// Returns the offset of the only activation.
std::size_t result_offset(const MemoryPlan& plan) {
  return *std::ranges::find_if(plan.value_offset, [](std::size_t offset) { return offset != kNoOffset; });
}

}  // namespace

DeviceCast::DeviceCast(Device& device, DType from, DType to)
    : device_(device),
      source_(source_store(device, from)),
      arena_(std::make_shared<Arena>(device)),
      executable_(cast_program(from, to), arena_, {.weights = &source_}),
      result_(result_offset(executable_.plan())),
      from_bytes_(size_of(from)),
      to_bytes_(size_of(to)) {
  executable_.set_recording(false);
}

void DeviceCast::run(const std::byte* from, std::byte* to, std::size_t elements) {
  for (std::size_t done = 0; done < elements;) {
    const std::size_t count = std::min(elements - done, static_cast<std::size_t>(kPiece));
    device_.copy(source_.data(kSource), from + done * from_bytes_, count * from_bytes_);
    executable_.run();
    device_.copy(to + done * to_bytes_, arena_->base() + result_, count * to_bytes_);
    done += count;
  }
}

}  // namespace hone

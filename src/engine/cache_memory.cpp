#include "engine/cache_memory.h"

#include <algorithm>
#include <string>

#include "backend/device_memory.h"
#include "core/error.h"
#include "core/strings.h"
#include "engine/generation_workspace.h"
#include "system/job_place.h"

namespace hone {
namespace {

// With fewer requests a GPU reads its weights for few tokens; with shorter steps it multiplies few rows of prompts.
constexpr std::int64_t kGpuSequences = 256, kGpuTokens = 2048;
constexpr std::int64_t kCpuSequences = 64, kCpuTokens = 512;

// Returns the bytes of the device that are available to this process. The ranks of a group agree on the least, and
// those of one machine share its memory.
std::int64_t available_bytes(Device& device, EngineGroup* group) {
  auto available = static_cast<std::int64_t>(memory_of(device).available);
  if (group == nullptr) return available;
  group->send(GroupOrder::kMemory);
  available = group->least(available);
  return device.kind() == DeviceKind::kCpu ? available / job_place().local_size : available;
}

}  // namespace

std::int64_t num_seqs(std::int64_t given, DeviceKind device) {
  if (given > 0) return given;
  return device == DeviceKind::kCpu ? kCpuSequences : kGpuSequences;
}

std::int64_t num_batched_tokens(std::int64_t given, DeviceKind device) {
  if (given > 0) return given;
  return device == DeviceKind::kCpu ? kCpuTokens : kGpuTokens;
}

EngineOptions with_cache_that_fits(EngineOptions options, const Model& model, DType dtype, Device& device,
                                   EngineGroup* group, const CacheLimits& limits) {
  check_model(options, model);
  const std::int64_t per_sequence = (options.max_model_len + options.block_size - 1) / options.block_size;
  const auto block_bytes =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes_of_block(model, dtype, options, device.kind())));
  std::int64_t most = limits.bytes;
  if (most == 0) {
    const std::int64_t available =
        available_bytes(device, group) / (device.kind() == DeviceKind::kCpu ? limits.host_share : 1);
    const std::int64_t half = available / 2;
    most =
        device.kind() == DeviceKind::kCpu ? std::max(available / 8, std::min(half, per_sequence * block_bytes)) : half;
  }
  const std::int64_t blocks = most / block_bytes;
  if (blocks < per_sequence) {
    const std::string longest = text_of("set ", limits.length_key, " so that prompt and completion have at most ",
                                        blocks * options.block_size, " tokens");
    const std::string largest = text_of("set ", limits.bytes_key, " to at least ", per_sequence * block_bytes);
    std::string fix = longest;
    if (!limits.bytes_key.empty()) fix = blocks > 0 ? text_of(longest, ", or ", largest) : largest;
    if (blocks == 0 && limits.bytes == 0) fix = "quantize the weights (quantization: fp8)";
    throw Error(limits.bytes > 0 ? limits.bytes_key : limits.length_key,
                text_of("the KV cache may have ", most, " bytes, but one completion of ", options.max_model_len,
                        " tokens with its prompt needs ", per_sequence * block_bytes),
                fix);
  }
  options.num_blocks = std::min(blocks, per_sequence * options.max_num_seqs);
  return resolved(options);
}

}  // namespace hone

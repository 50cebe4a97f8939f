#include "train/fit.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "train/setup.h"

namespace hone {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kHostActivationGib = 4.0;
constexpr std::size_t kNotable = std::size_t{1} << 30;  // bytes in use elsewhere that are worth a word

// Changes the next key that there is to change; nothing where the options have been through all.
std::optional<std::string> next_change(TrainingOptions& options, DType dtype) {
  if (options.gradient_checkpointing != Recomputation::on) {
    options.gradient_checkpointing = Recomputation::on;
    options.activation_memory_gib.reset();
    return "gradient_checkpointing: true";
  }
  if (dtype == DType::bf16 && options.gradient_dtype != GradientType::bfloat16) {
    options.gradient_dtype = GradientType::bfloat16;
    return "gradient_dtype: bfloat16";
  }
  if (dtype == DType::bf16 && options.optim == OptimizerType::adamw) {
    options.optim = OptimizerType::adamw_bf16;
    return text_of("optim: ", name_of(options.optim));
  }
  if (dtype == DType::bf16 && options.optim == OptimizerType::adamw_bf16) {
    options.optim = OptimizerType::adamw_8bit;
    return text_of("optim: ", name_of(options.optim));
  }
  if (options.per_device_train_batch_size > 1) {
    options.per_device_train_batch_size = 1;
    return "per_device_train_batch_size: 1";
  }
  return std::nullopt;
}

// "31.20 GiB are in use already: freed, it would fit; ", where that is so.
std::string in_use(DeviceMemory there, std::size_t bytes) {
  const std::size_t used = there.total - there.available;
  if (bytes > there.total || used < kNotable) return {};
  return text_of(format_bytes(used), " are in use already, by other processes too: freed, it would fit; ");
}

// "it fits with gradient_checkpointing: true (takes 31.20 GiB), then optim: adamw_bf16 (takes 20.00 GiB)"
std::string advice(const std::vector<FitChange>& changes, std::size_t available) {
  std::string text;
  for (const FitChange& change : changes) {
    if (!text.empty()) text += ", then ";
    text += text_of(change.text, " (takes ", format_bytes(change.bytes), ")");
  }
  if (changes.empty())
    return "nothing that can be set saves enough: a smaller model, shorter sequences or a larger device";
  if (changes.back().bytes <= available) return "it fits with " + text;
  return text_of("even with ", text, " it is ", format_bytes(changes.back().bytes - available), " too much");
}

}  // namespace

std::vector<FitChange> changes_to_fit(TrainingOptions options, DType dtype, std::size_t available, std::size_t bytes,
                                      const BytesWith& bytes_with) {
  std::vector<FitChange> changes;
  while (bytes > available) {
    TrainingOptions changed = options;
    const std::optional<std::string> text = next_change(changed, dtype);
    if (!text) break;
    const std::size_t then = bytes_with(changed);
    if (then < bytes) {
      changes.push_back({*text, then});
      bytes = then;
    }
    options = changed;
  }
  return changes;
}

DeviceMemory device_memory(const TrainingOptions& options) {
  return options.plan.device ? *options.plan.device : memory_of(open_device(options.device));
}

std::size_t activation_budget(const TrainingOptions& options, std::size_t held) {
  if (options.activation_memory_gib || device_kind(options) == DeviceKind::cpu) {
    return static_cast<std::size_t>(options.activation_memory_gib.value_or(kHostActivationGib) * kGib);
  }
  // Inputs are known when the program is: a few numbers a token.
  constexpr std::size_t kInputs = std::size_t{64} << 20;
  const std::size_t available = device_memory(options).available;
  return available - std::min(available, held + kInputs);
}

std::string fit_text(const TrainingOptions& options, DType dtype, DeviceMemory there, std::size_t bytes,
                     const BytesWith& bytes_with) {
  const std::string have = text_of("available ", format_bytes(there.available), " of ", format_bytes(there.total));
  if (bytes <= there.available) return text_of(have, ": it fits\n");
  return text_of(have, ": ", format_bytes(bytes - there.available), " too much\n", in_use(there, bytes),
                 advice(changes_to_fit(options, dtype, there.available, bytes, bytes_with), there.available), "\n");
}

void check_fits(const TrainingOptions& options, DType dtype, const Device& device, std::size_t bytes,
                const BytesWith& bytes_with) {
  const DeviceMemory there = memory_of(device);
  if (bytes <= there.available) return;
  throw Error(
      "memory",
      text_of("the run takes ", format_bytes(bytes), ", ", device.name(), " has ", format_bytes(there.available),
              " available of ", format_bytes(there.total), ": ", format_bytes(bytes - there.available), " too much"),
      in_use(there, bytes) +
          advice(changes_to_fit(options, dtype, there.available, bytes, bytes_with), there.available));
}

}  // namespace hone

#include "train/memory_fit.h"

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
constexpr std::string_view kTokensKey = "max_tokens_per_micro_batch: ";

// Changes the next option that saves memory and returns its text, or nullopt if none is left.
std::optional<std::string> next_change(TrainingOptions& options, DType dtype, TokenRange micro_batch) {
  if (options.gradient_checkpointing != Recomputation::kOn) {
    options.gradient_checkpointing = Recomputation::kOn;
    options.activation_memory_gib.reset();
    return "gradient_checkpointing: true";
  }
  if (dtype == DType::kBf16 && options.gradient_dtype != GradientType::kBfloat16) {
    options.gradient_dtype = GradientType::kBfloat16;
    return "gradient_dtype: bfloat16";
  }
  if (dtype == DType::kBf16 && options.optim == OptimizerType::kAdamw) {
    options.optim = OptimizerType::kAdamwBf16;
    return text_of("optim: ", name_of(options.optim));
  }
  // check_mesh() refuses 8-bit states in a tensor group.
  const bool divided = options.tensor_parallel_size > 1;
  if (dtype == DType::kBf16 && options.optim == OptimizerType::kAdamwBf16 && !divided) {
    options.optim = OptimizerType::kAdamw8bit;
    return text_of("optim: ", name_of(options.optim));
  }
  if (micro_batch.most > 0) {
    const std::int64_t now = options.max_tokens_per_micro_batch.value_or(micro_batch.most);
    if (now <= micro_batch.least) return std::nullopt;
    options.max_tokens_per_micro_batch = std::max(micro_batch.least, now / 2);
    return text_of(kTokensKey, *options.max_tokens_per_micro_batch);
  }
  if (options.per_device_train_batch_size > 1) {
    options.per_device_train_batch_size = 1;
    return "per_device_train_batch_size: 1";
  }
  return std::nullopt;
}

// All changes in the order in which they are tried, and the options after each of them.
struct KeyChanges {
  std::vector<std::string> texts;
  std::vector<TrainingOptions> after;
};

KeyChanges key_changes(TrainingOptions options, DType dtype, TokenRange micro_batch) {
  KeyChanges changes;
  while (std::optional<std::string> text = next_change(options, dtype, micro_batch)) {
    changes.texts.push_back(std::move(*text));
    changes.after.push_back(options);
  }
  return changes;
}

}  // namespace

std::vector<FitChange> changes_to_fit(const TrainingOptions& options, DType dtype, std::size_t available,
                                      std::size_t bytes, const RunBytes& run) {
  const KeyChanges changes = key_changes(options, dtype, run.micro_batch);
  std::vector<FitChange> taken = changes_to_fit(changes.texts, available, bytes,
                                                [&](std::size_t count) { return run.with(changes.after[count - 1]); });
  // A smaller number of tokens replaces the one before it.
  for (std::size_t i = 1; i < taken.size();) {
    const bool replaced = taken[i - 1].text.starts_with(kTokensKey) && taken[i].text.starts_with(kTokensKey);
    if (replaced) {
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    } else {
      ++i;
    }
  }
  return taken;
}

DeviceMemory device_memory(const TrainingOptions& options) {
  if (options.plan.device) return *options.plan.device;
  return options.agreed_memory ? *options.agreed_memory : memory_of(open_device(options.device));
}

std::size_t activation_budget(const TrainingOptions& options, std::size_t held) {
  if (options.activation_memory_gib || device_kind(options) == DeviceKind::kCpu) {
    return static_cast<std::size_t>(options.activation_memory_gib.value_or(kHostActivationGib) * kGib);
  }
  // The inputs of the program are not known yet; they are a few numbers per token.
  constexpr std::size_t kInputs = std::size_t{64} << 20;
  const std::size_t available = device_memory(options).available;
  return available - std::min(available, held + kInputs);
}

std::string memory_fit_text(const TrainingOptions& options, DType dtype, DeviceMemory there, std::size_t bytes,
                            const RunBytes& run) {
  const std::string have = text_of("available ", format_bytes(there.available), " of ", format_bytes(there.total));
  if (bytes <= there.available) return text_of(have, ": it fits\n");
  return text_of(have, ": ", format_bytes(bytes - there.available), " too much\n", memory_in_use_text(there, bytes),
                 advice_text(changes_to_fit(options, dtype, there.available, bytes, run), there.available), "\n");
}

void check_fits(const TrainingOptions& options, DType dtype, const Device& device, std::size_t bytes,
                const RunBytes& run) {
  const DeviceMemory there = device_memory(options);
  if (bytes <= there.available) return;
  throw Error(
      "memory",
      text_of("the run takes ", format_bytes(bytes), ", ", device.name(), " has ", format_bytes(there.available),
              " available of ", format_bytes(there.total), ": ", format_bytes(bytes - there.available), " too much"),
      memory_in_use_text(there, bytes) +
          advice_text(changes_to_fit(options, dtype, there.available, bytes, run), there.available));
}

}  // namespace hone

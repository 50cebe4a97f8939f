// Learning-rate schedules, equal to those of transformers 4.52 (transformers/optimization.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/options.h"

namespace hone {

enum class SchedulerType : std::uint8_t {
  kLinear,
  kCosine,
  kCosineWithRestarts,
  kCosineWithMinLr,
  kPolynomial,
  kConstant,
  kConstantWithWarmup,
  kInverseSqrt,
  kWarmupStableDecay,
};
template <>
inline constexpr EnumTable kEnumTable<SchedulerType>{
    .names =
        "linear|cosine|cosine_with_restarts|cosine_with_min_lr|polynomial|constant|constant_with_warmup|inverse_sqrt|"
        "warmup_stable_decay",
    .not_yet = "reduce_lr_on_plateau|cosine_warmup_with_min_lr|greedy"};

// Shapes of the rise and the decay of warmup_stable_decay.
enum class RampType : std::uint8_t { kLinear, kCosine, kOneMinusSqrt };
template <>
inline constexpr EnumTable kEnumTable<RampType>{.names = "linear|cosine|1-sqrt"};

// The option lr_scheduler_kwargs. A key that the chosen schedule does not use is an error.
struct SchedulerKwargs {
  std::optional<double> min_lr;
  std::optional<double> min_lr_rate;
  std::optional<double> num_cycles;
  std::optional<double> lr_end;
  std::optional<double> power;
  std::optional<std::int64_t> timescale;
  std::optional<std::int64_t> num_decay_steps;
  std::optional<std::int64_t> num_stable_steps;
  std::optional<double> min_lr_ratio;
  RampType warmup_type = RampType::kLinear;
  RampType decay_type = RampType::kCosine;

  template <class Visitor>
  void fields(Visitor& v) {
    v("min_lr", min_lr, "cosine_with_min_lr: the rate at the end", at_least(0));
    v("min_lr_rate", min_lr_rate, "cosine_with_min_lr: the rate at the end as a share of learning_rate", within(0, 1));
    v("num_cycles", num_cycles, "Waves of a cosine (half a wave where unset), or restarts (1)", above(0));
    v("lr_end", lr_end, "polynomial: the rate at the end (1e-7)", at_least(0));
    v("power", power, "polynomial: the exponent (1)", above(0));
    v("timescale", timescale, "inverse_sqrt: the time scale (the warm-up steps, or 10,000)", at_least(1));
    v("num_decay_steps", num_decay_steps, "warmup_stable_decay: steps of the decay", at_least(0));
    v("num_stable_steps", num_stable_steps, "warmup_stable_decay: steps at the full rate (all that remain)",
      at_least(0));
    v("min_lr_ratio", min_lr_ratio, "warmup_stable_decay: the lowest rate as a share of learning_rate (0)",
      within(0, 1));
    v("warmup_type", warmup_type, "warmup_stable_decay: how the rate rises");
    v("decay_type", decay_type, "warmup_stable_decay: how the rate falls");
  }
};

struct ScheduleOptions {
  SchedulerType type = SchedulerType::kLinear;
  double learning_rate = 0;      // peak
  std::int64_t total_steps = 0;  // optimizer steps of the whole run
  std::int64_t warmup_steps = 0;
  SchedulerKwargs kwargs;
};

// Returns warmup_steps if it is above 0, otherwise total_steps x warmup_ratio, rounded up.
[[nodiscard]] std::int64_t warmup_steps_of(std::int64_t total_steps, std::int64_t warmup_steps, double warmup_ratio);

class Schedule {
 public:
  // Throws Error if lr_scheduler_kwargs lacks a key that the type needs, has two that exclude each other, or has one
  // that the type does not use.
  explicit Schedule(const ScheduleOptions& options);

  // Returns the learning rate of optimizer step `step`, counted from 0. With a warm-up the first rate is 0, as in
  // transformers.
  [[nodiscard]] double rate(std::int64_t step) const;

 private:
  [[nodiscard]] double factor(std::int64_t step) const;
  [[nodiscard]] double polynomial(std::int64_t step) const;
  [[nodiscard]] double warmup_stable_decay(std::int64_t step) const;

  // The values of kwargs with the defaults of the type filled in.
  struct Numbers {
    double min_lr_rate = 0;
    double num_cycles = 0;
    double lr_end = 0;
    double power = 0;
    double timescale = 0;
    std::int64_t num_decay_steps = 0;
    std::int64_t num_stable_steps = 0;
    double min_lr_ratio = 0;
  };

  ScheduleOptions options_;
  Numbers numbers_;
};

}  // namespace hone

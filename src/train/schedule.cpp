#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace hone {
namespace {

constexpr double kPi = std::numbers::pi;

void require(bool holds, std::string_view what, std::string_view fix) {
  if (!holds) throw Error("lr_scheduler_kwargs", what, fix);
}

// Throws Error for the first value that is set although the schedule does not use it.
void check_unread(SchedulerType type, const SchedulerKwargs& kwargs) {
  using T = SchedulerType;
  const bool wave = type == T::kCosine || type == T::kCosineWithMinLr || type == T::kCosineWithRestarts;
  const bool stable = type == T::kWarmupStableDecay;
  const auto check = [&](bool is_set, bool is_read, std::string_view key) {
    if (!is_set || is_read) return;
    throw Error(text_of("lr_scheduler_kwargs.", key), text_of("lr_scheduler_type ", name_of(type), " does not read it"),
                "remove the key or choose another lr_scheduler_type");
  };
  check(kwargs.min_lr.has_value(), type == T::kCosineWithMinLr, "min_lr");
  check(kwargs.min_lr_rate.has_value(), type == T::kCosineWithMinLr, "min_lr_rate");
  check(kwargs.num_cycles.has_value(), wave || stable, "num_cycles");
  check(kwargs.lr_end.has_value(), type == T::kPolynomial, "lr_end");
  check(kwargs.power.has_value(), type == T::kPolynomial, "power");
  check(kwargs.timescale.has_value(), type == T::kInverseSqrt, "timescale");
  check(kwargs.num_decay_steps.has_value(), stable, "num_decay_steps");
  check(kwargs.num_stable_steps.has_value(), stable, "num_stable_steps");
  check(kwargs.min_lr_ratio.has_value(), stable, "min_lr_ratio");
  check(kwargs.warmup_type != RampType::kLinear, stable, "warmup_type");
  check(kwargs.decay_type != RampType::kCosine, stable, "decay_type");
}

double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
}

double cosine_wave(double progress, double cycles) { return 0.5 * (1.0 + std::cos(kPi * cycles * 2.0 * progress)); }

}  // namespace

std::int64_t warmup_steps_of(std::int64_t total_steps, std::int64_t warmup_steps, double warmup_ratio) {
  if (warmup_steps > 0) return warmup_steps;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(total_steps) * warmup_ratio));
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  const SchedulerKwargs& kwargs = options_.kwargs;
  check_unread(options_.type, kwargs);
  const std::int64_t default_timescale = options_.warmup_steps > 0 ? options_.warmup_steps : 10'000;
  numbers_ = {.min_lr_rate = kwargs.min_lr_rate.value_or(0.0),
              .num_cycles = kwargs.num_cycles.value_or(options_.type == SchedulerType::kCosineWithRestarts ? 1.0 : 0.5),
              .lr_end = kwargs.lr_end.value_or(1e-7),
              .power = kwargs.power.value_or(1.0),
              .timescale = static_cast<double>(kwargs.timescale.value_or(default_timescale)),
              .num_decay_steps = kwargs.num_decay_steps.value_or(0),
              .num_stable_steps = kwargs.num_stable_steps.value_or(0),
              .min_lr_ratio = kwargs.min_lr_ratio.value_or(0.0)};
  switch (options_.type) {
    case SchedulerType::kCosineWithMinLr:
      require(kwargs.min_lr.has_value() != kwargs.min_lr_rate.has_value(),
              text_of("cosine_with_min_lr needs exactly one of min_lr and min_lr_rate, saw ",
                      kwargs.min_lr ? "both" : "neither"),
              "for example lr_scheduler_kwargs: {min_lr_rate: 0.1}");
      if (kwargs.min_lr) {
        require(options_.learning_rate > 0, "min_lr needs a learning_rate above 0, saw 0", "use min_lr_rate");
        numbers_.min_lr_rate = *kwargs.min_lr / options_.learning_rate;
      }
      break;
    case SchedulerType::kPolynomial:
      require(options_.learning_rate > numbers_.lr_end,
              text_of("lr_end ", numbers_.lr_end, " is not below learning_rate ", options_.learning_rate),
              "choose a smaller lr_end");
      break;
    case SchedulerType::kWarmupStableDecay:
      require(kwargs.num_decay_steps.has_value(), "warmup_stable_decay needs num_decay_steps",
              "for example lr_scheduler_kwargs: {num_decay_steps: 100}");
      if (!kwargs.num_stable_steps) {
        numbers_.num_stable_steps = options_.total_steps - options_.warmup_steps - numbers_.num_decay_steps;
        require(numbers_.num_stable_steps >= 0,
                text_of("warm-up ", options_.warmup_steps, " + num_decay_steps ", numbers_.num_decay_steps,
                        " is more than the run's ", options_.total_steps, " steps"),
                "shorten one of them");
      }
      break;
    default:
      break;
  }
}

double Schedule::rate(std::int64_t step) const { return options_.learning_rate * factor(step); }

double Schedule::factor(std::int64_t step) const {
  const std::int64_t warmup = options_.warmup_steps;
  if (options_.type == SchedulerType::kConstant) return 1.0;
  if (options_.type == SchedulerType::kWarmupStableDecay) return warmup_stable_decay(step);
  if (step < warmup) return share(step, warmup);
  const double progress = share(step - warmup, options_.total_steps - warmup);
  switch (options_.type) {
    case SchedulerType::kLinear:
      return std::max(0.0, share(options_.total_steps - step, options_.total_steps - warmup));
    case SchedulerType::kCosine:
      return std::max(0.0, cosine_wave(progress, numbers_.num_cycles));
    case SchedulerType::kCosineWithMinLr: {
      const double lowest = numbers_.min_lr_rate;
      return std::max(0.0, cosine_wave(progress, numbers_.num_cycles) * (1.0 - lowest) + lowest);
    }
    case SchedulerType::kCosineWithRestarts: {
      if (progress >= 1.0) return 0.0;
      const double wave = std::fmod(numbers_.num_cycles * progress, 1.0);
      return std::max(0.0, 0.5 * (1.0 + std::cos(kPi * wave)));
    }
    case SchedulerType::kPolynomial:
      return polynomial(step);
    case SchedulerType::kInverseSqrt: {
      const double timescale = numbers_.timescale;
      return 1.0 / std::sqrt((static_cast<double>(step) + (timescale - static_cast<double>(warmup))) / timescale);
    }
    default:
      return 1.0;  // constant_with_warmup
  }
}

double Schedule::polynomial(std::int64_t step) const {
  const double lowest = numbers_.lr_end;
  if (step > options_.total_steps || options_.total_steps <= options_.warmup_steps) {
    return lowest / options_.learning_rate;
  }
  const double remaining = 1.0 - share(step - options_.warmup_steps, options_.total_steps - options_.warmup_steps);
  const double range = options_.learning_rate - lowest;
  return (range * std::pow(remaining, numbers_.power) + lowest) / options_.learning_rate;
}

double Schedule::warmup_stable_decay(std::int64_t step) const {
  const SchedulerKwargs& kwargs = options_.kwargs;
  const double lowest = numbers_.min_lr_ratio;
  const auto scaled = [&](double ramp) { return std::max(0.0, ramp * (1.0 - lowest) + lowest); };
  const std::int64_t decay_start = options_.warmup_steps + numbers_.num_stable_steps;
  if (step < options_.warmup_steps) {
    const double progress = share(step, options_.warmup_steps);
    if (kwargs.warmup_type == RampType::kLinear) return scaled(progress);
    if (kwargs.warmup_type == RampType::kCosine) return scaled(0.5 * (1.0 - std::cos(kPi * progress)));
    return scaled(1.0 - std::sqrt(1.0 - progress));
  }
  if (step < decay_start) return 1.0;
  if (step >= decay_start + numbers_.num_decay_steps) return lowest;
  const double progress = share(step - decay_start, numbers_.num_decay_steps);
  if (kwargs.decay_type == RampType::kLinear) return scaled(1.0 - progress);
  if (kwargs.decay_type == RampType::kCosine) return scaled(cosine_wave(progress, numbers_.num_cycles));
  return scaled(1.0 - std::sqrt(progress));
}

}  // namespace hone

#include "ops/op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/random.h"
#include "ops/registry.h"
#include "passes/fusion.h"
#include "passes/gradient.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

double relative_tolerance(DType dtype) { return dtype == DType::kF64 ? 1e-10 : dtype == DType::kF32 ? 2e-5 : 2e-2; }

std::vector<std::byte> to_bytes(DType dtype, const Values& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  const auto store = [&](auto convert) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = convert(values[i]);
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    }
  };
  switch (dtype) {
    case DType::kF32:
      store([](double v) { return static_cast<float>(v); });
      break;
    case DType::kF64:
      store([](double v) { return v; });
      break;
    case DType::kBf16:
      store([](double v) { return BFloat16(static_cast<float>(v)); });
      break;
    case DType::kI32:
      store([](double v) { return static_cast<std::int32_t>(v); });
      break;
    case DType::kI64:
      store([](double v) { return static_cast<std::int64_t>(v); });
      break;
    case DType::kU8:
      store([](double v) { return static_cast<std::uint8_t>(v); });
      break;
  }
  return bytes;
}

Values from_bytes(DType dtype, std::span<const std::byte> bytes) {
  Values values(bytes.size() / size_of(dtype));
  const auto load = [&](auto sample, auto convert) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&sample, bytes.data() + i * sizeof(sample), sizeof(sample));
      values[i] = convert(sample);
    }
  };
  const auto plain = [](auto v) { return static_cast<double>(v); };
  switch (dtype) {
    case DType::kF32:
      load(float{}, plain);
      break;
    case DType::kF64:
      load(double{}, plain);
      break;
    case DType::kBf16:
      load(BFloat16{}, [](BFloat16 v) { return static_cast<double>(static_cast<float>(v)); });
      break;
    case DType::kI32:
      load(std::int32_t{}, plain);
      break;
    case DType::kI64:
      load(std::int64_t{}, plain);
      break;
    case DType::kU8:
      load(std::uint8_t{}, plain);
      break;
  }
  return values;
}

std::int64_t used_elements(const Type& type, const Counts& counts) {
  if (type.count() == Count::none) return type.elements();
  const std::int64_t factor = type.shape[0].factor;
  return rows_in_use(counts, type.count(), type.rows() / factor) * factor * type.row_size();
}

Type run_type(const CaseInput& input, DType dtype) {
  Type type = input.type;
  if (type.dtype == DType::kF32) type.dtype = input.keeps_dtype ? accumulator_of(dtype) : dtype;
  return type;
}

// Values of an input, rounded to its dtype; the tail is filled with large finite garbage.
Values make_values(const CaseInput& input, const Type& type, const Counts& counts, std::uint64_t seed) {
  const RandomStream random(seed, input.name);
  const std::int64_t used = used_elements(type, counts);
  Values values(static_cast<std::size_t>(type.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) >= used) {
      values[i] = is_floating(type.dtype) ? 1e3 * random.normal(i) : std::numeric_limits<std::int32_t>::max();
    } else if (!input.values.empty()) {
      values[i] = input.values[i];
    } else {
      values[i] = input.scale * random.normal(i);
    }
  }
  return from_bytes(type.dtype, to_bytes(type.dtype, values));
}

struct Run {
  std::vector<Type> output_types;
  std::vector<Values> outputs;
  std::vector<Values> gradients;  // by input; empty if no gradient is requested
};

class CaseRunner {
 public:
  CaseRunner(const OpCase& op_case, DType dtype, const Counts& counts)
      : case_(op_case), dtype_(dtype), counts_(counts) {
    for (const CaseInput& input : case_.inputs) {
      types_.push_back(run_type(input, dtype));
      inputs_.push_back(make_values(input, types_.back(), counts_, 7));
    }
  }

  [[nodiscard]] const std::vector<Values>& inputs() const { return inputs_; }
  void set_inputs(std::vector<Values> inputs) { inputs_ = std::move(inputs); }
  [[nodiscard]] const Type& type(std::size_t i) const { return types_[i]; }

  // Seed gradient of output i: random, and zero past the count.
  [[nodiscard]] Values seed_of(std::size_t i, const Type& type) const {
    const RandomStream random(11, "seed" + std::to_string(i));
    Values values(static_cast<std::size_t>(type.elements()), 0.0);
    const std::int64_t used = used_elements(type, counts_);
    for (std::int64_t k = 0; k < used; ++k)
      values[static_cast<std::size_t>(k)] = random.normal(static_cast<std::uint64_t>(k));
    return from_bytes(type.dtype, to_bytes(type.dtype, values));
  }

  [[nodiscard]] bool seeded(std::size_t i, const Type& type) const {
    return case_.seeded.empty() ? is_floating(type.dtype) : case_.seeded[i];
  }

  [[nodiscard]] Run run() const {
    Program program;
    std::vector<Tensor> inputs;
    std::vector<NamedType> weights;
    for (std::size_t i = 0; i < case_.inputs.size(); ++i) {
      const CaseInput& input = case_.inputs[i];
      if (input.weight) weights.push_back({input.name, types_[i]});
      inputs.push_back(input.weight ? program.weight(input.name, types_[i], input.differentiable)
                                    : program.input(input.name, types_[i]));
    }
    const std::vector<Tensor> outputs = case_.build(program, inputs);
    Run result;
    std::vector<GradientSeed> seeds;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      program.output("output" + std::to_string(i), outputs[i]);
      result.output_types.push_back(outputs[i].type());
      if (!seeded(i, outputs[i].type())) continue;
      seeds.push_back({outputs[i], program.input("seed" + std::to_string(i), outputs[i].type())});
    }
    std::vector<std::size_t> wanted_index;
    std::vector<Tensor> wanted;
    for (std::size_t i = 0; i < case_.inputs.size(); ++i) {
      if (case_.inputs[i].weight || !case_.inputs[i].differentiable || !is_floating(types_[i].dtype)) continue;
      wanted_index.push_back(i);
      wanted.push_back(inputs[i]);
    }
    std::vector<Tensor> wanted_gradients;
    if (!seeds.empty()) wanted_gradients = append_gradients(program, seeds, wanted);
    for (std::size_t k = 0; k < wanted_gradients.size(); ++k) {
      EXPECT_TRUE(wanted_gradients[k].valid())
          << case_.name << ": no gradient for " << case_.inputs[wanted_index[k]].name;
      if (wanted_gradients[k]) program.output("gradient" + std::to_string(wanted_index[k]), wanted_gradients[k]);
    }
    if (case_.fused) program = fuse(program);
    std::vector<NamedType> gradient_types;
    for (const Value& value : program.values()) {
      if (value.role == Role::kGradient) gradient_types.push_back({value.name, value.type});
    }

    TensorStore weight_store(test_device(), weights);
    TensorStore gradient_store(test_device(), gradient_types);
    auto arena = std::make_shared<Arena>(test_device());
    Executable executable(std::move(program), arena, {.weights = &weight_store, .gradients = &gradient_store});
    const auto run_once = [&] {
      gradient_store.fill_zero();
      poison(*arena);
      for (std::size_t i = 0; i < case_.inputs.size(); ++i) {
        const std::vector<std::byte> bytes = to_bytes(types_[i].dtype, inputs_[i]);
        if (case_.inputs[i].weight) {
          weight_store.upload(case_.inputs[i].name, bytes);
        } else {
          set(executable, case_.inputs[i].name, types_[i], bytes);
        }
      }
      for (std::size_t i = 0; i < result.output_types.size(); ++i) {
        const Type& type = result.output_types[i];
        if (seeded(i, type)) set(executable, "seed" + std::to_string(i), type, to_bytes(type.dtype, seed_of(i, type)));
      }
      for (const auto& [count, rows] : counts_) executable.set_count(count, rows);
      executable.run();
      return results(executable, gradient_store, result.output_types, !seeds.empty(), wanted_index);
    };
    Run first = run_once();
    first.output_types = result.output_types;
    // A device that records launches node by node, then records, then repeats what it has recorded.
    const int repeats = test_device().kind() == DeviceKind::kCpu ? 0 : 2;
    for (int repeat = 0; repeat < repeats; ++repeat) expect_same(first, run_once());
    return first;
  }

 private:
  // Uninitialised arena memory must not matter: it starts as NaN.
  static void poison(Arena& arena) {
    if (arena.bytes() > 0) arena.device().fill(arena.base(), 0xFF, arena.bytes());
  }

  [[nodiscard]] Run results(const Executable& executable, const TensorStore& gradients,
                            std::span<const Type> output_types, bool differentiated,
                            std::span<const std::size_t> wanted) const {
    Run result;
    for (std::size_t i = 0; i < output_types.size(); ++i) {
      result.outputs.push_back(get(executable, "output" + std::to_string(i), output_types[i]));
    }
    if (!differentiated) return result;
    result.gradients.resize(case_.inputs.size());
    for (std::size_t i = 0; i < case_.inputs.size(); ++i) {
      const std::string& name = case_.inputs[i].name;
      if (case_.inputs[i].weight && case_.inputs[i].differentiable) {
        result.gradients[i] = from_bytes(gradients.type(name).dtype, gradients.download(name));
      }
    }
    for (const std::size_t i : wanted) result.gradients[i] = get(executable, "gradient" + std::to_string(i), types_[i]);
    return result;
  }

  void expect_same(const Run& first, const Run& again) const {
    const auto same = [&](const std::vector<Values>& a, const std::vector<Values>& b) {
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].size(), b[i].size());
        EXPECT_TRUE(a[i].empty() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(double)) == 0)
            << case_.name << ", " << name_of(dtype_) << ": another run gave other bits in " << i;
      }
    };
    same(first.outputs, again.outputs);
    same(first.gradients, again.gradients);
  }

  // Calls as<T>() with the type of the elements.
  template <class As>
  static void with_element(DType dtype, const As& as) {
    switch (dtype) {
      case DType::kI32:
        as.template operator()<std::int32_t>();
        break;
      case DType::kI64:
        as.template operator()<std::int64_t>();
        break;
      case DType::kU8:
        as.template operator()<std::uint8_t>();
        break;
      default:
        for_floating(dtype, as);
    }
  }

  static void set(Executable& executable, const std::string& name, const Type& type,
                  const std::vector<std::byte>& bytes) {
    const auto as = [&]<class T>() {
      executable.set<T>(name, {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)});
    };
    with_element(type.dtype, as);
  }

  static Values get(const Executable& executable, const std::string& name, const Type& type) {
    std::vector<std::byte> bytes(type.bytes());
    const auto as = [&]<class T>() {
      executable.get<T>(name, {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)});
    };
    with_element(type.dtype, as);
    return from_bytes(type.dtype, bytes);
  }

  const OpCase& case_;
  DType dtype_;
  Counts counts_;
  std::vector<Type> types_;
  std::vector<Values> inputs_;
};

double largest(const Values& values, std::int64_t used) {
  double most = 0;
  for (std::int64_t i = 0; i < used; ++i) most = std::max(most, std::abs(values[static_cast<std::size_t>(i)]));
  return most;
}

// Expects max|a - b| / max|b| over the rows in use to be at most `tolerance`.
void expect_close(const Values& actual, const Values& expected, std::int64_t used, double tolerance,
                  const std::string& what) {
  ASSERT_LE(static_cast<std::size_t>(used), expected.size()) << what;
  const double scale = std::max(largest(expected, used), 1e-12);
  for (std::int64_t i = 0; i < used; ++i) {
    const double a = actual[static_cast<std::size_t>(i)];
    const double b = expected[static_cast<std::size_t>(i)];
    if (a == b) continue;
    ASSERT_LE(std::abs(a - b) / scale, tolerance) << what << " at " << i << ": " << a << " instead of " << b;
    ASSERT_FALSE(std::isnan(a)) << what << " at " << i;
  }
}

void expect_finite_tail(const Values& values, std::int64_t used, bool zero, const std::string& what) {
  for (std::size_t i = static_cast<std::size_t>(used); i < values.size(); ++i) {
    ASSERT_TRUE(std::isfinite(values[i])) << what << ": row past the count is not finite at " << i;
    if (zero) {
      ASSERT_EQ(values[i], 0.0) << what << ": row past the count is not zero at " << i;
    }
  }
}

// Scalar objective for finite differences: the sum of seed * output over the seeded outputs of the reference.
double objective(const OpCase& op_case, const CaseRunner& runner, const Run& run, std::span<const Values> inputs,
                 const Counts& counts) {
  const std::vector<Values> outputs = op_case.reference(inputs, counts);
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!runner.seeded(i, run.output_types[i])) continue;
    const Values seed = runner.seed_of(i, run.output_types[i]);
    const std::int64_t used = used_elements(run.output_types[i], counts);
    for (std::int64_t k = 0; k < used; ++k)
      sum += seed[static_cast<std::size_t>(k)] * outputs[i][static_cast<std::size_t>(k)];
  }
  return sum;
}

void check_against_differences(const OpCase& op_case, const CaseRunner& runner, const Run& run, const Counts& counts) {
  constexpr double kStep = 1e-5;
  constexpr std::int64_t kSamples = 24;
  const RandomStream random(3, op_case.name);
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    if (run.gradients[i].empty()) continue;
    const std::int64_t used = used_elements(runner.type(i), counts);
    const double scale = std::max(largest(run.gradients[i], used), 1e-6);
    for (std::int64_t s = 0; s < std::min(kSamples, used); ++s) {
      const auto at =
          used <= kSamples
              ? static_cast<std::size_t>(s)
              : static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(s), static_cast<std::uint64_t>(used)));
      std::vector<Values> inputs = runner.inputs();
      inputs[i][at] += kStep;
      const double above = objective(op_case, runner, run, inputs, counts);
      inputs[i][at] -= 2 * kStep;
      const double below = objective(op_case, runner, run, inputs, counts);
      const double expected = (above - below) / (2 * kStep);
      ASSERT_NEAR(run.gradients[i][at] / scale, expected / scale, 1e-6)
          << op_case.name << ": gradient of " << op_case.inputs[i].name << " at " << at;
    }
  }
}

void check_counts(const OpCase& op_case, const Counts& counts, const std::string& label) {
  const Run exact = [&] {
    const CaseRunner runner(op_case, DType::kF64, counts);
    Run run = runner.run();
    if (!run.gradients.empty()) check_against_differences(op_case, runner, run, counts);
    return run;
  }();
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBf16}) {
    const CaseRunner runner(op_case, dtype, counts);
    const Run run = runner.run();
    const std::string what = op_case.name + ", " + std::string(name_of(dtype)) + ", " + label;
    const double tolerance = relative_tolerance(dtype) * op_case.tolerance;
    const std::vector<Values> expected = op_case.reference(runner.inputs(), counts);
    ASSERT_EQ(expected.size(), run.outputs.size()) << what;
    for (std::size_t i = 0; i < run.outputs.size(); ++i) {
      const std::int64_t used = used_elements(run.output_types[i], counts);
      const std::string tensor = what + ": output " + std::to_string(i);
      expect_close(run.outputs[i], expected[i], used, tolerance, tensor);
      expect_finite_tail(run.outputs[i], used, false, tensor);
    }
    if (run.gradients.empty()) continue;
    // The float64 run on the same inputs is the reference of the gradients.
    CaseRunner wide(op_case, DType::kF64, counts);
    wide.set_inputs(runner.inputs());
    const Run reference = wide.run();
    for (std::size_t i = 0; i < run.gradients.size(); ++i) {
      if (run.gradients[i].empty()) continue;
      const std::int64_t used = used_elements(runner.type(i), counts);
      const std::string tensor = what + ": gradient of " + op_case.inputs[i].name;
      expect_close(run.gradients[i], reference.gradients[i], used, 2 * tolerance, tensor);
      expect_finite_tail(run.gradients[i], used, true, tensor);
    }
  }
}

}  // namespace

std::int64_t rows_in_use(const Counts& counts, Count count, std::int64_t capacity) {
  const auto found = counts.find(count);
  return found == counts.end() ? capacity : found->second;
}

void check(const OpCase& op_case) {
  register_operations();
  check_counts(op_case, Counts{}, "at capacity");
  if (op_case.below != Counts{}) check_counts(op_case, op_case.below, "below capacity");
}

}  // namespace hone::test

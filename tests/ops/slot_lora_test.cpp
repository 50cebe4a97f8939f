#include "ops/slot_lora/slot_lora.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

constexpr std::int64_t kRows = 9, kIn = 12, kOut = 10, kWidth = 3, kSlots = 4;

TEST(SlotLora, Cases) {
  const Values slots{2, 2, -1, 0, 3, 3, -1, 1, 2};
  check({
      .name = "slot_lora",
      .inputs = {{.name = "y", .type = {DType::kF32, {{kRows, Count::tokens}, kOut}}},
                 {.name = "x", .type = {DType::kF32, {{kRows, Count::tokens}, kIn}}},
                 {.name = "slots", .type = {DType::kI32, {{kRows, Count::tokens}}}, .values = slots},
                 {.name = "down", .type = {DType::kF32, {kSlots * kWidth, kIn}}, .scale = 0.3},
                 {.name = "up", .type = {DType::kF32, {kSlots * kOut, kWidth}}, .scale = 0.3}},
      .below = {{Count::tokens, 6}},
      .build =
          [](Program&, std::span<const Tensor> in) {
            return std::vector<Tensor>{slot_lora(in[0], in[1], in[2], in[3], in[4])};
          },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y = in[SlotLoraIn::y];
            const auto at = [&](std::size_t input, std::int64_t row, std::int64_t columns, std::int64_t column) {
              return in[input][static_cast<std::size_t>(row * columns + column)];
            };
            for (std::int64_t row = 0; row < kRows; ++row) {
              const auto slot = static_cast<std::int64_t>(slots[static_cast<std::size_t>(row)]);
              for (std::int64_t j = 0; slot >= 0 && j < kWidth; ++j) {
                double h = 0;
                for (std::int64_t i = 0; i < kIn; ++i)
                  h += at(SlotLoraIn::x, row, kIn, i) * at(SlotLoraIn::down, slot * kWidth + j, kIn, i);
                for (std::int64_t i = 0; i < kOut; ++i)
                  y[static_cast<std::size_t>(row * kOut + i)] += h * at(SlotLoraIn::up, slot * kOut + i, kWidth, j);
              }
            }
            return std::vector<Values>{y};
          },
      .seeded = {false},
  });
}

// A row has the same bits among rows of other slots as among rows of the same slot.
TEST(SlotLora, ARowDoesNotDependOnTheOthers) {
  register_operations();
  Program program;
  const auto floats = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return program.input(name, {DType::kF32, {rows, columns}});
  };
  const Tensor slots = program.input("slots", {DType::kI32, {kRows}});
  program.output("z", slot_lora(floats("y", kRows, kOut), floats("x", kRows, kIn), slots,
                                floats("down", kSlots * kWidth, kIn), floats("up", kSlots * kOut, kWidth)));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  const auto fill = [&](const char* name, std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(0.1f + static_cast<float>(i * 37 % 101) / 53.0f);
    executable.set<float>(name, values);
  };
  fill("y", kRows * kOut);
  fill("x", kRows * kIn);
  fill("down", kSlots * kWidth * kIn);
  fill("up", kSlots * kOut * kWidth);
  const auto run = [&](const std::vector<std::int32_t>& of_rows) {
    executable.set<std::int32_t>("slots", of_rows);
    executable.run();
    std::vector<float> z(kRows * kOut);
    executable.get<float>("z", z);
    return z;
  };
  const std::vector<std::int32_t> mixed{0, 1, -1, 3, 3, 2, 0, -1, 1};
  const std::vector<float> together = run(mixed);
  for (std::int32_t slot = -1; slot < kSlots; ++slot) {
    const std::vector<float> alone = run(std::vector<std::int32_t>(kRows, slot));
    for (std::int64_t i = 0; i < kRows * kOut; ++i) {
      if (mixed[static_cast<std::size_t>(i / kOut)] == slot) {
        EXPECT_EQ(together[static_cast<std::size_t>(i)], alone[static_cast<std::size_t>(i)]) << i;
      }
    }
  }
  if (!test_device_throws()) return;
  EXPECT_THROW(run({0, 1, 2, 3, kSlots, 0, 0, 0, 0}), Defect);
}

}  // namespace
}  // namespace hone::test

// Tests of 8-bit AdamW whose weights a tensor or an expert group divides, so that each process quantizes its parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/json_value.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

const Flags k8bit{"--optim", "adamw_8bit"};

// Models whose parts of MLPs and embedding have enough elements for 8-bit states, and some weights that have not. The
// matrices of an expert do not end at blocks.
Configs models() {
  Json experts = parse_json(mixtures().at("qwen3_moe"), "qwen3_moe");
  experts["moe_intermediate_size"] = 100;
  Configs configs{{"llama", SmallModel{.type = "llama", .intermediate = 512}.config()},
                  {"gpt2", SmallModel{.type = "gpt2"}.config()},
                  {"experts", experts.dump()}};
  return configs;
}

class StateBlocks : public DividedJob {
 protected:
  explicit StateBlocks(const Division& division = {.size_flag = "--tensor_parallel_size"})
      : DividedJob(division, models()) {}

  // Expects losses whose difference from those with states in f32 has the order of one process's.
  void expect_near_within_states(const std::string& output, const std::string& one, const std::string& wide) const {
    const std::vector<double> exact = series(wide, "loss");
    const auto difference = [&](const std::string& of) {
      const std::vector<double> values = series(of, "loss");
      EXPECT_EQ(values.size(), exact.size()) << of;
      double most = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) most = std::max(most, std::abs(values.at(i) - exact[i]));
      return most;
    };
    EXPECT_GT(difference(output), 0) << output << " has no 8-bit states";
    EXPECT_LT(difference(output), 4 * difference(one)) << output;
  }
};

TEST_F(StateBlocks, LossesAreThoseOfOneProcessWithinTheStates) {
  for (const char* model : {"llama", "gpt2", "experts"}) {
    const std::string name = model;
    run(name, name + " wide", 1, 1);
    run(name, name + " one", 1, 1, k8bit);
    for (const auto& [data, size] : {std::pair{1, 2}, {2, 2}, {1, 4}}) {
      const std::string output = text_of(name, " ", data, " x ", size);
      run(name, output, data, size, k8bit);
      expect_near_within_states(output, name + " one", name + " wide");
    }
  }
}

TEST_F(StateBlocks, ARunContinuesBitForBit) {
  const std::vector<Flags> kinds{
      {}, {"--torch_dtype", "bfloat16"}, {"--zero_stage", "1"}, {"--zero_stage", "3"}, {"--expert_parallel_size", "2"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string model = kind == 4 ? "experts" : "llama";
    expect_resumes(model, std::to_string(kind), kind < 2 ? 1 : 2, 2, joined(k8bit, kinds[kind]));
  }
  run("llama", "0", 2, 2, k8bit);
  EXPECT_EQ(weights("2 whole"), weights("0"));
}

TEST_F(StateBlocks, AnotherLayoutIsRefused) {
  run("llama", "one", 1, 1, k8bit);
  run("llama", "two", 1, 2, k8bit);
  const auto refused = [&](const std::string& from, int data, int size) {
    const std::string to = text_of(from, " on ", data, " x ", size);
    copy_checkpoint(from, to, 4);
    return refusal(arguments("llama", to, data, size, k8bit));
  };
  EXPECT_THAT(refused("one", 1, 2),
              HasSubstr("holds states of optim adamw_8bit for tensor_parallel_size 1 and expert_parallel_size 1, whose "
                        "blocks are not those of this run's parts"));
  EXPECT_THAT(refused("two", 1, 1), HasSubstr("for tensor_parallel_size 2 and expert_parallel_size 1"));
  EXPECT_THAT(refused("two", 1, 4), HasSubstr("for tensor_parallel_size 2 and expert_parallel_size 1"));
  // Groups of the same size have the same parts.
  resume("llama", "two", 4, "two groups", 2, 2, joined(k8bit, {"--zero_stage", "1"}));
  expect_near_end("two groups", "two", 4);
}

TEST_F(StateBlocks, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  for (const int size : {1, 2}) {
    (void)finish_as_planned(
        arguments("llama", text_of("planned ", size), 1, size, joined(k8bit, {"--max_steps", "1"})));
  }
}

class StateBlocksOfExperts : public StateBlocks {
 protected:
  StateBlocksOfExperts() : StateBlocks({.size_flag = "--expert_parallel_size", .divides_sequences = true}) {}
};

TEST_F(StateBlocksOfExperts, LossesAreThoseOfOneProcessWithinTheStates) {
  run("experts", "wide", 1, 1);
  run("experts", "one", 1, 1, k8bit);
  run("experts", "two", 2, 2, k8bit);
  expect_near_within_states("two", "one", "wide");
  expect_resumes("experts", "again", 2, 2, k8bit);
  copy_checkpoint("two", "on one", 4);
  EXPECT_THAT(refusal(arguments("experts", "on one", 1, 1, k8bit)), HasSubstr("expert_parallel_size 2"));
}

}  // namespace
}  // namespace hone::test

// Compares mixtures with those that open-r1 builds with Hugging Face's datasets (tests/fixtures/data/make_mixtures.py).
#include "data/mixture.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "data/encode.h"
#include "data/numpy_permutation.h"
#include "data/prompt_set.h"
#include "support/paths.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Source open(const MixtureDataset& dataset) {
  return {test::fixture("data/mixtures") / dataset.id, {.split = dataset.split}};
}

MixtureSources mixture_of(const std::string& text) {
  return open_mixture(read_mixture(parse_yaml(text, "m.yaml"), "dataset_mixture"), {}, open);
}

// Returns the numbers of the rows in the source's order.
std::vector<std::int64_t> numbers_of(const Source& source) {
  std::vector<std::int64_t> visited;
  BadRows bad;
  source.for_each_row(bad,
                      [&](const Json& row, const RowPlace&) { visited.push_back(row.at("n").get<std::int64_t>()); });
  std::vector<std::int64_t> rows;
  for (const std::uint32_t at : source.order()) rows.push_back(visited.at(at));
  return rows;
}

std::string error_of(const std::string& text) {
  try {
    (void)mixture_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NumpyPermutation, AsNumpyHasThem) {
  EXPECT_THAT(numpy_permutation(0, 10), ElementsAre(4, 6, 2, 7, 3, 5, 9, 0, 8, 1));
  EXPECT_THAT(numpy_permutation(42, 10), ElementsAre(5, 6, 0, 7, 3, 2, 4, 9, 1, 8));
  EXPECT_THAT(numpy_permutation(1, 1), ElementsAre(0));
  EXPECT_TRUE(numpy_permutation(1, 0).empty());
}

TEST(Mixture, RowsAndOrderAreOpenR1s) {
  const Json cases = read_json(test::fixture("data/mixtures") / "expected.json");
  ASSERT_EQ(cases.size(), 7u);
  for (const Json& item : cases) {
    const std::string text = item.at("mixture").dump();
    const MixtureSources sources = mixture_of(text);
    EXPECT_EQ(numbers_of(sources.train), item.at("train").get<std::vector<std::int64_t>>()) << text;
    ASSERT_EQ(sources.test.has_value(), item.contains("test")) << text;
    if (sources.test) {
      EXPECT_EQ(numbers_of(*sources.test), item.at("test").get<std::vector<std::int64_t>>()) << text;
    }
  }
}

TEST(Mixture, ExamplesAndPromptsFollowTheOrder) {
  const MixtureSources sources = mixture_of("{datasets: [{id: a.jsonl, weight: 0.5}, {id: b.parquet}], seed: 5}");
  const Tokenizer tokenizer = Tokenizer::load(test::fixture("data/tokenizer"));
  const ChatTemplate chat_template(chatml_template());
  const std::vector<std::int64_t> numbers = numbers_of(sources.train);
  EncodingReport report;
  const ExampleSet set = encode_examples(sources.train, tokenizer, chat_template, {.eos_optional = true}, report);
  ASSERT_EQ(set.size(), static_cast<std::int64_t>(numbers.size()));
  EncodingReport prompts_report;
  const PromptSet prompts =
      encode_prompts(sources.train, tokenizer, chat_template, {.columns = {.prompt_column = "text"}}, prompts_report);
  ASSERT_EQ(prompts.size(), set.size());
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const std::int64_t n = numbers[static_cast<std::size_t>(i)];
    const std::string text = (n < 100 ? "a" + std::to_string(n) : "b" + std::to_string(n - 100));
    std::string decoded = tokenizer.decode(set[i].tokens);
    EXPECT_TRUE(decoded.starts_with(text)) << decoded << " for " << text;
    EXPECT_EQ(prompts.row(i).at("text"), text);
  }
}

TEST(Mixture, BadOnesGetOneLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{seed: 1}", "dataset_mixture: has no list of datasets"},
      {"{datasets: []}", "has no list of datasets"},
      {"{datasets: [{weight: 1}]}", "dataset 1 has no id"},
      {"{datasets: [{id: a.jsonl, wieght: 1}]}", "wieght: unknown key (did you mean weight?)"},
      {"{datasets: [{id: a.jsonl, weight: 1.5}]}", "the weight of a.jsonl is 1.5"},
      {"{datasets: [{id: a.jsonl, weight: 0}]}", "the weight of a.jsonl is 0"},
      {"{datasets: [{id: a.jsonl, weight: much}]}", "weight: expected a number"},
      {"{datasets: [{id: a.jsonl, columns: [n]}, {id: b.parquet, columns: [text]}]}",
       "keep different columns: n and text"},
      {"{datasets: [{id: a.jsonl, columns: [m]}]}", "has no column 'm'; it has: text, n"},
      {"{datasets: [{id: a.jsonl, weight: 0.01}]}", "the weights leave no rows"},
      {"{datasets: [{id: none.jsonl}]}", "no such file or folder"},
      {"{datasets: [{id: a.jsonl}], test_split_size: 41}", "test_split_size: is 41, and the mixture has 41 rows"},
      {"{datasets: [{id: a.jsonl}], test_split_size: 1.5}", "test_split_size: is 1.5"},
      {"{datasets: [{id: a.jsonl, split: test}]}", "a single file has no split 'test'"},
      {"[a.jsonl]", "expected lines of `key: value`"},
  };
  for (const auto& [text, reason] : cases) EXPECT_THAT(error_of(text), HasSubstr(reason)) << text;
}

}  // namespace
}  // namespace hone

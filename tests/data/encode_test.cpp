#include "data/encode.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/parallel.h"
#include "data/prompt_set.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::error_text;
using testing::ElementsAre;
using testing::HasSubstr;

class EncodeTest : public testing::Test {
 protected:
  [[nodiscard]] Source rows(const std::vector<Json>& values) const {
    std::string content;
    for (const Json& value : values) content += value.dump() + "\n";
    const std::filesystem::path path = folder_.path() / "rows.jsonl";
    write_file(path, content);
    return {path, {}};
  }
  ExampleSet encode(const std::vector<Json>& values, const EncodeOptions& options = {}) {
    report = {};
    return encode_examples(rows(values), tokenizer, chat_template, options, report);
  }
  PromptSet prompts(const std::vector<Json>& values, const PromptOptions& options = {}) {
    report = {};
    return encode_prompts(rows(values), tokenizer, chat_template, options, report);
  }
  [[nodiscard]] std::string decode(std::span<const TokenId> tokens) const { return tokenizer.decode(tokens); }
  // Returns the text of an example's target tokens.
  [[nodiscard]] std::string learned(const ExampleView& example) const {
    std::vector<TokenId> tokens;
    for (std::size_t t = 0; t < example.tokens.size(); ++t) {
      if (example.is_target.empty() || example.is_target[t] != 0) tokens.push_back(example.tokens[t]);
    }
    return decode(tokens);
  }

  const Tokenizer tokenizer = Tokenizer::load(test::fixture("data/tokenizer"));
  const ChatTemplate chat_template{tokenizer.chat_template()};
  const Json reference = read_json(test::fixture("data/encodings.json"));
  EncodingReport report;

 private:
  test::TemporaryDirectory folder_;
};

std::vector<int> ints(const Json& values) { return values.get<std::vector<int>>(); }

template <class T>
std::vector<int> ints(std::span<const T> values) {
  return {values.begin(), values.end()};
}

TEST_F(EncodeTest, AssistantMasksAreThoseOfTransformers) {
  ASSERT_EQ(reference["conversations"].size(), 4u);
  for (const Json& expected : reference["conversations"]) {
    const ExampleSet set = encode({{{"messages", expected["messages"]}}}, {.loss = LossOn::kAssistant});
    EXPECT_EQ(ints(set[0].tokens), ints(expected["ids"])) << expected["messages"];
    EXPECT_EQ(ints(set[0].is_target), ints(expected["mask"])) << expected["messages"];
  }
}

TEST_F(EncodeTest, CompletionMasksAreThoseOfTrl) {
  ASSERT_EQ(reference["pairs"].size(), 5u);
  for (const Json& expected : reference["pairs"]) {
    const Json row = {{"prompt", expected["prompt"]}, {"completion", expected["completion"]}};
    for (const LossOn loss : {LossOn::kAutomatic, LossOn::kCompletion}) {
      const ExampleSet set = encode({row}, {.loss = loss});
      EXPECT_EQ(ints(set[0].tokens), ints(expected["ids"])) << row;
      EXPECT_EQ(ints(set[0].is_target), ints(expected["mask"])) << row;
    }
    EXPECT_TRUE(encode({row}, {.loss = LossOn::kAll})[0].is_target.empty());
  }
}

TEST_F(EncodeTest, TextGetsEosWhereAbsent) {
  const ExampleSet set = encode({{{"text", "Hi"}}, {{"text", "Hi<|im_end|>"}}});
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(decode(set[0].tokens), "Hi<|im_end|>");
  EXPECT_EQ(ints(set[0].tokens), ints(set[1].tokens));
  EXPECT_TRUE(set.is_target().empty());
  EXPECT_EQ(report.target_tokens, report.tokens - 2);
}

// As in TRL, which tokenises texts with the tokenizer's special tokens, and rendered templates without them.
TEST_F(EncodeTest, PlainTextBeginsWithWhatThePostProcessorPuts) {
  Json file = read_json(test::fixture("data/tokenizer/tokenizer.json"));
  const TokenId bos = *tokenizer.token_id("<|im_start|>");
  file["post_processor"]["single"].insert(file["post_processor"]["single"].begin(),
                                          Json{{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}});
  file["post_processor"]["special_tokens"]["<|im_start|>"] = {
      {"id", "<|im_start|>"}, {"ids", {bos}}, {"tokens", {"<|im_start|>"}}};
  const Tokenizer with_bos =
      Tokenizer::from_json(file.dump(), read_file(test::fixture("data/tokenizer/tokenizer_config.json")));
  const Json turns = Json::array({{{"role", "user"}, {"content", "A?"}}, {{"role", "assistant"}, {"content", "B"}}});
  const ExampleSet set = encode_examples(rows({{{"text", "Hi"}},
                                               {{"text", "<|im_start|>Hi"}},
                                               {{"prompt", "1 + 1 = "}, {"completion", "2"}},
                                               {{"messages", turns}}}),
                                         with_bos, chat_template, {.max_length = 64}, report);
  EXPECT_EQ(decode(set[0].tokens), "<|im_start|>Hi<|im_end|>");
  EXPECT_EQ(ints(set[0].tokens), ints(set[1].tokens)) << "not twice";
  EXPECT_EQ(decode(set[2].tokens), "<|im_start|>1 + 1 = 2<|im_end|>");
  EXPECT_EQ(learned(set[2]), "2<|im_end|>");
  EXPECT_EQ(ints(set[3].tokens), ints(encode({{{"messages", turns}}})[0].tokens));
}

TEST_F(EncodeTest, RowsOfIdsAreTakenAsTheyAre) {
  const Json ids = {5, 6, 7, 8};
  ExampleSet set = encode({{{"input_ids", ids}, {"text", "not read"}}}, {.tokens_only = true});
  EXPECT_THAT(ints(set[0].tokens), ElementsAre(5, 6, 7, 8));
  EXPECT_TRUE(set[0].is_target.empty());
  const auto mask = [&](const char* column, const Json& values, LossOn loss) {
    return ints(encode({{{"input_ids", ids}, {column, values}}}, {.loss = loss})[0].is_target);
  };
  EXPECT_THAT(mask("completion_mask", {0, 0, 1, 1}, LossOn::kAutomatic), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(mask("completion_mask", {0, 0, 1, 1}, LossOn::kCompletion), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(mask("completion_mask", {0, 0, 1, 1}, LossOn::kAll), ElementsAre());
  EXPECT_THAT(mask("assistant_masks", {0, 1, 0, 1}, LossOn::kAssistant), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(mask("labels", {-100, -100, -100, 8}, LossOn::kAutomatic), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(encode({{{"input_ids", ids}}}, {.max_length = 3})[0].tokens.size(), 3u);
}

TEST_F(EncodeTest, RowsOfIdsThatCannotBeUsed) {
  const Json good = {{"input_ids", {5, 6}}};
  const auto fault = [&](const Json& row, const EncodeOptions& options = {}) {
    (void)encode({{{"input_ids", {5, 6}}, {"assistant_masks", {0, 1}}}, row}, options);
    return report.bad.count() == 1 ? report.bad.first().front() : "no fault";
  };
  EXPECT_THAT(fault({{"input_ids", "text"}}), HasSubstr("column input_ids is string, not a list of ids"));
  EXPECT_THAT(fault({{"input_ids", {5, -1}}}), HasSubstr("input_ids contains -1; the tokenizer's ids are 0 to "));
  EXPECT_THAT(fault({{"input_ids", {5, 1 << 30}}}), HasSubstr("input_ids contains 1073741824"));
  EXPECT_THAT(fault({{"input_ids", {5, 6}}, {"completion_mask", {1}}}),
              HasSubstr("column completion_mask is not a list of 2 numbers"));
  EXPECT_THAT(fault({{"input_ids", {5, 6}}, {"labels", {5, 7}}}),
              HasSubstr("label 1 is 7, neither -100 nor the token 6"));
  EXPECT_THAT(fault(good, {.loss = LossOn::kAssistant}), HasSubstr("input_ids come without assistant_masks"));
  EXPECT_THAT(fault({{"text", "Hi"}}, {.tokens_only = true}),
              HasSubstr("no column input_ids, which skip_prepare_dataset requires"));
}

TEST_F(EncodeTest, OtherColumns) {
  const Json turns = Json::array({{{"from", "user"}, {"value", "A?"}}, {{"from", "assistant"}, {"value", "B"}}});
  const ExampleSet set = encode({{{"conversations", turns}},
                                 {{"problem", "A?"}, {"solution", "B"}},
                                 {{"question", "A?"}, {"answer", "B"}, {"id", 7}},
                                 {{"body", "A?"}}},
                                {.columns = {.text_field = "body"}});
  ASSERT_EQ(set.size(), 4);
  const std::string chat = "<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n";
  EXPECT_EQ(decode(set[0].tokens), chat);
  EXPECT_EQ(learned(set[0]), chat);
  EXPECT_EQ(decode(set[1].tokens), chat);
  EXPECT_EQ(learned(set[1]), "B<|im_end|>\n");
  EXPECT_EQ(learned(set[2]), "B<|im_end|>\n");
  EXPECT_EQ(decode(set[3].tokens), "A?<|im_end|>");
}

TEST_F(EncodeTest, SystemPromptOnlyWhereThereIsNone) {
  const auto say = [](const char* role) { return Json{{"role", role}, {"content", "x"}}; };
  const ExampleSet set = encode({{{"messages", Json::array({say("user"), say("assistant")})}},
                                 {{"messages", Json::array({say("system"), say("user"), say("assistant")})}}},
                                {.columns = {.system_prompt = "Brief."}});
  EXPECT_THAT(decode(set[0].tokens), HasSubstr("<|im_start|>system\nBrief.<|im_end|>\n<|im_start|>user\nx"));
  EXPECT_THAT(decode(set[1].tokens), testing::Not(HasSubstr("Brief.")));
}

TEST_F(EncodeTest, MaxLengthCutsAndCounts) {
  const ExampleSet set = encode({{{"text", "abcdefghijkl"}}, {{"text", "ab"}}}, {.max_length = 5});
  EXPECT_EQ(decode(set[0].tokens), decode(tokenizer.encode("abcdefghijkl")).substr(0, decode(set[0].tokens).size()));
  EXPECT_EQ(set.length(0), 5);
  EXPECT_EQ(report.cut, 1);
  EXPECT_EQ(report.examples, 2);
}

TEST_F(EncodeTest, BadRowsTable) {
  const Json good = {{"text", "Hi"}};
  const std::string long_prompt(200, 'x');
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"text", ""}}, "column 'text' is empty"},
      {{{"text", " \n"}}, "column 'text' is empty"},
      {{{"text", nullptr}}, "column 'text' is null, not text"},
      {{{"text", 5}}, "column 'text' is number, not text"},
      {{{"body", "x"}, {"id", 1}}, "the columns are: body, id"},
      {{{"messages", Json::array()}}, "column 'messages' is empty"},
      {{{"messages", "Hi"}}, "column 'messages' is string, not a list of messages"},
      {{{"messages", Json::array({1})}}, "message 1 is not an object"},
      {{{"messages", Json::array({{{"content", "x"}}})}}, "message 1 has no role"},
      {{{"messages", Json::array({{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}}})}},
       "message 2 has no content"},
      {{{"prompt", "x"}, {"completion", ""}}, "column 'completion' is empty"},
      {{{"prompt", nullptr}, {"completion", "x"}}, "column 'prompt' is null"},
      {{{"prompt", long_prompt}, {"completion", "x"}}, "no target tokens within max_length 50"},
      {{{"question", "x"}}, "no column messages, 'text' (dataset_text_field)"},
  };
  for (const auto& [row, reason] : cases) {
    const ExampleSet set = encode({good, row, good}, {.max_length = 50});
    EXPECT_EQ(set.size(), 2) << row;
    EXPECT_EQ(report.rows, 3);
    ASSERT_EQ(report.bad.count(), 1) << row;
    EXPECT_THAT(report.bad.first()[0], HasSubstr("rows.jsonl line 2: "));
    EXPECT_THAT(report.bad.first()[0], HasSubstr(reason));
  }
}

TEST_F(EncodeTest, NothingLeftIsAnError) {
  EXPECT_THAT(error_text([&] { encode({{{"body", "x"}}, {{"body", "y"}}}); }),
              HasSubstr("leaves nothing to use: 2 of 2 rows left out: "));
  EXPECT_THAT(error_text([&] { encode({}); }), HasSubstr("holds no rows"));
  EXPECT_THAT(error_text([&] { encode({{{"text", "x"}}}, {.loss = LossOn::kCompletion}); }),
              HasSubstr("completion_only_loss needs the columns prompt and completion"));
  EXPECT_THAT(error_text([&] { encode({{{"text", "x"}}}, {.loss = LossOn::kAssistant}); }),
              HasSubstr("{% generation %}"));
  EXPECT_THAT(error_text([&] { encode({{{"text", "x"}}}, {.max_length = -1}); }), HasSubstr("max_length"));
}

TEST_F(EncodeTest, ManyRowsKeepTheirOrderOnAnyNumberOfThreads) {
  std::vector<Json> values;
  for (int i = 0; i < 2500; ++i) {
    values.push_back(i % 7 == 3 ? Json{{"other", i}} : Json{{"text", "row " + std::to_string(i)}});
  }
  const int threads = thread_count();
  set_thread_count(1);
  const ExampleSet one = encode(values);
  const EncodingReport first = report;
  set_thread_count(4);
  const ExampleSet four = encode(values);
  set_thread_count(threads);
  EXPECT_EQ(ints(one.tokens()), ints(four.tokens()));
  EXPECT_EQ(first.bad.first(), report.bad.first());
  EXPECT_EQ(report.bad.count(), 357);
  EXPECT_EQ(report.rows, 2500);
  EXPECT_EQ(decode(four[2142].tokens), "row 2499<|im_end|>");
}

TEST_F(EncodeTest, PromptsAreRenderedAsTransformersDoes) {
  ASSERT_EQ(reference["prompts"].size(), 4u);
  for (const Json& expected : reference["prompts"]) {
    const PromptSet set = prompts({{{"prompt", expected["messages"]}, {"answer", 5}}});
    EXPECT_EQ(ints(set.tokens(0)), ints(expected["ids"])) << expected["text"];
    const Json& last = expected["messages"].back();
    EXPECT_EQ(set.prefill(0), last["role"] == "assistant" ? last["content"].get<std::string>() : "");
    EXPECT_EQ(set.row(0)["answer"], 5);
  }
}

TEST_F(EncodeTest, PromptColumnsAndTheirRows) {
  const std::vector<Json> values = {{{"question", "A?"}, {"answer", "1"}, {"nested", {{"k", nullptr}}}},
                                    {{"problem", "B?"}, {"solution", "\u00e9"}},
                                    {{"other", "C?"}}};
  const PromptSet set = prompts(values, {.columns = {.system_prompt = "Brief."}});
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(decode(set.tokens(0)),
            "<|im_start|>system\nBrief.<|im_end|>\n<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(set.row(0), values[0]);
  EXPECT_EQ(set.row(1), values[1]);
  EXPECT_EQ(report.bad.count(), 1);
  EXPECT_THAT(report.bad.first()[0], HasSubstr("no column prompt, problem or question (set dataset_prompt_column); "
                                               "the columns are: other"));
  EXPECT_EQ(prompts(values, {.columns = {.prompt_column = "other"}}).size(), 1);
  EXPECT_THAT(error_text([&] { prompts(values, {.columns = {.prompt_column = "ask"}}); }),
              HasSubstr("no column 'ask' (dataset_prompt_column); the columns are: question, answer, nested"));
}

TEST_F(EncodeTest, LongPromptsKeepTheirLastTokens) {
  const std::vector<Json> values = {{{"prompt", "What is the sum of the two?"}}, {{"prompt", "A"}}};
  const PromptSet whole = prompts(values);
  EXPECT_EQ(report.cut, 0);
  const PromptSet cut = prompts(values, {.max_prompt_length = 12});
  EXPECT_EQ(report.cut, 1);
  const auto tokens = whole.tokens(0);
  EXPECT_EQ(ints(cut.tokens(0)), ints(tokens.last(12)));
  EXPECT_EQ(ints(cut.tokens(1)), ints(whole.tokens(1)));
  EXPECT_EQ(cut.longest(), 12);
}

}  // namespace
}  // namespace hone

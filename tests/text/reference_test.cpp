// Compares with the cases of scripts/check_text.sh, which are too large to keep: HONE_TEXT_REFERENCE names their
// folder. A .jsonl file has one case per line.
//   tokenizers/NAME/         a tokenizer; next to it NAME.cases.jsonl: {"text": base64, "ids": [...], "decoded": ...}
//                            ("decoded" only if it differs from the text)
//   conversations.json       [{"messages", "variables", "add_generation_prompt"}]
//   templates.jsonl          {"name", "source", "results": for each conversation {"text", "assistant"} or {"fails"}}
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cases.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class TextReference : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("HONE_TEXT_REFERENCE");
    if (folder == nullptr) GTEST_SKIP() << "scripts/check_text.sh runs it";
    folder_ = folder;
  }

  // Counts the differences, and prints the first few.
  void differ(const std::string& what) {
    if (++differences_ <= 20) ADD_FAILURE() << what;
  }

  void check_tokenizer(const fs::path& folder) {
    const Tokenizer tokenizer = Tokenizer::load(folder);
    std::ifstream lines(folder.string() + ".cases.jsonl");
    std::size_t cases = 0, tokens = 0;
    for (std::string line; std::getline(lines, line); ++cases) {
      const Json one = Json::parse(line);
      const std::string text = test::from_base64(one["text"].get<std::string>());
      const auto ids = one["ids"].get<std::vector<TokenId>>();
      const std::string decoded = one.contains("decoded") ? one["decoded"].get<std::string>() : text;
      const std::string start = testing::PrintToString(text.substr(0, 80));
      if (tokenizer.encode(text) != ids) differ("other ids for " + start);
      if (tokenizer.decode(ids) != decoded) differ("other text for the ids of " + start);
      Detokenizer detokenizer(tokenizer);
      std::string streamed;
      for (const TokenId id : ids) streamed += detokenizer.add(id);
      if (streamed + detokenizer.flush() != decoded) differ("streamed otherwise: " + start);
      tokens += ids.size();
    }
    EXPECT_GT(cases, 0U);
    std::cout << folder.filename().string() << ": " << cases << " texts, " << tokens << " tokens, " << differences_
              << " differences\n";
  }

  fs::path folder_;
  std::size_t differences_ = 0;
};

TEST_F(TextReference, Tokenizers) {
  for (const auto& entry : fs::directory_iterator(folder_ / "tokenizers")) {
    if (!entry.is_directory()) continue;
    differences_ = 0;
    check_tokenizer(entry.path());
  }
}

TEST_F(TextReference, Templates) {
  const Json conversations = read_json(folder_ / "conversations.json");
  std::ifstream lines(folder_ / "templates.jsonl");
  std::size_t templates = 0, rendered = 0, failed = 0;
  for (std::string line; std::getline(lines, line); ++templates) {
    const Json file = Json::parse(line);
    const auto name = file["name"].get<std::string>();
    ASSERT_EQ(file["results"].size(), conversations.size());
    for (std::size_t number = 0; number < conversations.size(); ++number) {
      const Json& asked = conversations[number];
      const Json& one = file["results"][number];
      const std::string place = name + " " + std::to_string(number) + ": ";
      const bool must_fail = one.value("fails", false);
      ++(must_fail ? failed : rendered);
      try {
        const RenderedChat chat =
            ChatTemplate(file["source"].get<std::string>())
                .render(asked["messages"], asked["add_generation_prompt"].get<bool>(), asked["variables"]);
        if (must_fail) {
          differ(place + "renders, the reference does not");
        } else if (chat.text != one["text"].get<std::string>()) {
          const auto wanted = one["text"].get<std::string>();
          const auto at = static_cast<std::size_t>(
              std::mismatch(chat.text.begin(), chat.text.end(), wanted.begin(), wanted.end()).first -
              chat.text.begin());
          const std::size_t from = at < 30 ? 0 : at - 30;
          differ(place + testing::PrintToString(chat.text.substr(from, 90)) + " where the reference has " +
                 testing::PrintToString(wanted.substr(from, 90)));
        } else if (chat.assistant != one["assistant"].get<std::vector<std::pair<std::size_t, std::size_t>>>()) {
          differ(place + "other parts of the assistant");
        }
      } catch (const Error& error) {
        if (!must_fail) differ(place + error.what());
      }
    }
  }
  EXPECT_GT(rendered, 0U);
  std::cout << templates << " templates, " << rendered << " texts, " << failed << " refusals, " << differences_
            << " differences\n";
}

}  // namespace
}  // namespace hone

#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "support/paths.h"

namespace hone {
namespace {

std::string source_of(const std::string& name) {
  return name.ends_with(".jinja") ? read_file(test::fixture("text/templates/" + name)) : name;
}

TEST(ChatTemplate, RendersAsTransformers) {
  const Json file = read_json(test::fixture("text/templates.cases.json"));
  int rendered = 0, failed = 0;
  for (const Json& one : file["cases"]) {
    const auto name = one["template"].get<std::string>();
    const Json& variables = one["variables"].is_string() ? file["data"] : one["variables"];
    const auto render = [&] {
      return ChatTemplate(source_of(name)).render(one["messages"], one["add_generation_prompt"].get<bool>(), variables);
    };
    if (one.value("fails", false)) {
      ++failed;
      EXPECT_THROW((void)render(), Error) << name;
      continue;
    }
    ++rendered;
    try {
      const RenderedChat chat = render();
      EXPECT_EQ(chat.text, one["text"].get<std::string>()) << name;
      EXPECT_EQ(chat.assistant, (one["assistant"].get<std::vector<std::pair<std::size_t, std::size_t>>>())) << name;
    } catch (const Error& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
  EXPECT_GT(rendered, 120);
  EXPECT_GT(failed, 40);
}

TEST(ChatTemplate, ChatmlIsTheFixture) {
  EXPECT_EQ(chatml_template(), read_file(test::fixture("text/templates/chatml.jinja")));
}

TEST(ChatTemplate, TheDayIsFixedUnlessSet) {
  ChatTemplate chat_template("{{ strftime_now('%d %b %Y, %A %-H:%M%Z') }}");
  const auto text = [&] { return chat_template.render(Json::array(), false, Json::object()).text; };
  EXPECT_EQ(text(), "26 Jul 2024, Friday 0:00");
  chat_template.set_local_time(kTemplateTime + 25 * 3600 + 60);
  EXPECT_EQ(text(), "27 Jul 2024, Saturday 1:01");
}

TEST(ChatTemplate, ReasoningGoesByAllItsNames) {
  const ChatTemplate chat_template("{% for m in messages %}{{ m.thinking }},{{ m.reasoning_content }};{% endfor %}");
  const Json messages = Json::parse(R"([{"reasoning": "a"}, {"thinking": "b", "reasoning": "c"},
    {"thinking": "d", "reasoning_content": "e"}, {"thinking": null}])");
  EXPECT_EQ(chat_template.render(messages, false, Json::object()).text, "a,a;b,b;d,e;None,;");
}

TEST(ChatTemplate, DamagedTemplatesDoNotCrash) {
  const RandomStream random(3, "templates");
  const Json messages = Json::parse(R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])");
  constexpr std::string_view kPieces[] = {"{%", "%}", "{{",  "}}", "-", "(",  ")", "[", "]",  "|",
                                          "'",  "if", "for", "in", " ", "\n", "x", "~", "{#", "set"};
  std::uint64_t index = 0;
  int rendered = 0;
  for (const char* name : {"qwen2_5.jinja", "chatml.jinja"}) {
    const std::string whole = source_of(name);
    for (int round = 0; round < 1500; ++round) {
      std::string text = whole;
      for (int edit = 0; edit < 2; ++edit) {
        const std::size_t at = random.below(index++, text.size());
        if (random.below(index++, 2) == 0) {
          text.erase(at, 1 + random.below(index++, 8));
        } else {
          text.insert(at, kPieces[random.below(index++, std::size(kPieces))]);
        }
      }
      try {
        (void)ChatTemplate(text).render(messages, true, Json::object());
        ++rendered;
      } catch (const Error&) {
      }
    }
  }
  EXPECT_GT(rendered, 0);
}

}  // namespace
}  // namespace hone

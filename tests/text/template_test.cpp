// Tests of templates alone: their errors and limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "jinja/parser.h"
#include "jinja/renderer.h"

namespace hone {
namespace {

RenderedTemplate render(std::string_view source) {
  return TemplateRenderer(std::make_shared<TemplateScope>(), 0).render(parse_template(source));
}

std::string template_error(std::string_view source) {
  try {
    (void)render(source);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_THAT(template_error("a\nb\n{{ 1 + 'x' }}"), testing::StartsWith("chat template, line 3: "));
  EXPECT_THAT(template_error("a\n{% if x %}\n"), testing::HasSubstr("line 2: "));
  EXPECT_THAT(template_error("{% if true %}\n\n{{ raise_exception('no system role') }}{% endif %}"),
              testing::AllOf(testing::HasSubstr("line 3"), testing::HasSubstr("no system role")));
  EXPECT_THAT(template_error("\n{% set x %}\n{{ 'a' | shout }}{% endset %}"),
              testing::AllOf(testing::HasSubstr("line 3"), testing::HasSubstr("'shout'")));
  EXPECT_THAT(template_error("{{ strftime_later('%Y') }}"), testing::HasSubstr("'strftime_later' is undefined"));
}

TEST(Jinja, EndlessTemplatesStop) {
  EXPECT_THAT(
      template_error("{% for a in range(99999) %}{% for b in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor %}"),
      testing::HasSubstr("too many steps"));
  EXPECT_THAT(template_error("{% for a in range(9999) %}{{ 'x' * 100000 }}{% endfor %}"),
              testing::HasSubstr("exceeds the limit"));
  // A list that contains itself twice, sixty levels deep.
  const std::string doubled =
      "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}";
  for (const char* walk : {"{{ n.a }}", "{{ n.a ~ '' }}", "{{ n.a | tojson }}", "{{ n.a == [n.a] }}",
                           "{{ [n.a] | unique | list }}", "{{ [n.a, n.a] | sort }}", "{{ n.a is eq [n.a] }}"}) {
    EXPECT_THAT(template_error(doubled + walk), testing::HasSubstr("too many steps")) << walk;
  }
  EXPECT_THAT(template_error("{% set a = 'a' * 1000000 %}{{ (a ~ 'b') in (a ~ a) }}"),
              testing::HasSubstr("too many steps"));
  EXPECT_THAT(template_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), testing::HasSubstr("too deep"));
  EXPECT_THAT(
      template_error("{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}"),
      testing::HasSubstr("too deep"));
  EXPECT_THAT(
      template_error("{% set n = namespace(x='a') %}{% for i in range(999) %}{% set n.x = n.x + n.x %}{% endfor %}"),
      testing::HasSubstr("too "));
  EXPECT_THAT(
      template_error("{% set n = namespace(x='a') %}{% for i in range(999) %}{% set n.x = n.x ~ n.x %}{% endfor %}"),
      testing::HasSubstr("too "));
  EXPECT_THAT(template_error("{{ 'a' * 99999999999 }}"), testing::HasSubstr("too long"));
  EXPECT_THAT(template_error("{% set n = namespace() %}{% set n.n = n %}"), testing::HasSubstr("cannot hold"));
  EXPECT_NE(template_error("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), "no error");
  EXPECT_NE(template_error("{{ " + std::string(5000, '-') + "1 }}"), "no error");
  std::string sum = "{{ 1", blocks;
  for (int i = 0; i < 100'000; ++i) sum += " + 1";
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}";
  EXPECT_NE(template_error(sum + " }}"), "no error");
  EXPECT_NE(template_error(blocks), "no error");
}

TEST(Jinja, GenerationBlocksAreRanges) {
  const RenderedTemplate rendered =
      render("a{% generation %}bc{% endgeneration %}d{% generation %}e{% endgeneration %}");
  EXPECT_EQ(rendered.text, "abcde");
  EXPECT_EQ(rendered.generated, (std::vector<std::pair<std::size_t, std::size_t>>{{1, 3}, {4, 5}}));
}

}  // namespace
}  // namespace hone

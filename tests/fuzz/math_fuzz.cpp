// Fuzz target: a gold answer and, after a zero byte, an answer, which are compared. Every scalar must equal itself.
#include "fuzz/target.h"
#include "math_equality/answer.h"
#include "math_equality/value.h"

namespace hone::fuzz {
namespace {

void check(const std::optional<MathValue>& value) {
  if (!value) return;
  const bool same = equal_values(*value, *value);
  HONE_ASSERT(same || value->kind != MathValue::Kind::kOpaque, "not equal to itself: ", value->text);
  (void)as_percent(*value);
}

void check(const MathAnswer& gold, const MathAnswer& answer) {
  (void)equal(gold, answer);
  (void)equal(answer, gold);
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(math)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const auto [gold_text, answer_text] = fuzz::parted(fuzz::as_text(data, size), '\0');
  for (const std::string_view text : {gold_text, answer_text}) {
    fuzz::check(parse_latex(text));
    fuzz::check(parse_arithmetic(text));
  }
  const std::optional<MathAnswer> gold = parse_gold(gold_text);
  const std::optional<MathAnswer> answer = parse_answer(answer_text);
  const std::optional<MathAnswer> other = parse_gold(answer_text);
  if (gold) {
    fuzz::check(*gold, *gold);
    HONE_ASSERT(gold->text.empty() || equal(*gold, *gold), "not equal to itself: ", gold->text);
  }
  if (gold && answer) fuzz::check(*gold, *answer);
  if (gold && other) fuzz::check(*gold, *other);
  return 0;
}

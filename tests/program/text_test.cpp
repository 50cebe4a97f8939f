// Tests of the text format of programs: its layout, round trips, and the errors of texts that do not parse.
#include "program/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "core/random.h"
#include "core/strings.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/fill/fill.h"
#include "ops/linear/linear.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/scale/scale.h"

namespace hone::test {
namespace {

constexpr std::string_view kText =
    "%0: f32[tokens:8, 16] = input \"x\"\n"
    "%1: i32[tokens:8] = input \"positions\"\n"
    "%2: f32[16] = weight \"norm\" trainable\n"
    "%3: f32[tokens:8, 16], %4: f32[tokens:8] = rms_norm(%0, %2) {epsilon=1e-05} @layers.0.attention forward\n"
    "%5: f32[32, 16] = weight \"qkv\"\n"
    "%6: f32[tokens:8, 32] = linear(%3, %5, _) {f32_output=false} @layers.0.attention forward\n"
    "%7: f32[tokens:8, 8] = rope_table(%1) {head_dim=8, theta=1e+06, scaling=\"llama3\", factor=8, "
    "low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=8192, beta_fast=32, beta_slow=1, "
    "truncate=true, attention_factor=1} forward\n"
    "%8: f32[tokens:8, 32] = rope(%6, %7) {heads=3, head_dim=8, inverse=false, offset=0, interleaved=false} forward\n"
    "%9: f32[tokens:8, 32] = scale(%8) {factor=-0.1} update\n"
    "output \"y\" = %9\n"
    "output \"norm\" = %3\n";

Program sample_program() {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{8, Count::tokens}, 16}});
  const Tensor positions = program.input("positions", {DType::kI32, {{8, Count::tokens}}});
  Tensor h;
  Tensor qkv;
  {
    const Scope layer(program, "layers.0");
    const Scope scope(program, "attention");
    h = rms_norm(x, program.weight("norm", {DType::kF32, {16}}), {.epsilon = 1e-5});
    qkv = linear(h, program.weight("qkv", {DType::kF32, {32, 16}}, false));
  }
  const Tensor table = rope_table(positions, {.head_dim = 8,
                                              .theta = 1e6,
                                              .scaling = "llama3",
                                              .factor = 8,
                                              .low_freq_factor = 1,
                                              .high_freq_factor = 4,
                                              .original_max_position_embeddings = 8192});
  qkv = rope(qkv, table, {.heads = 3, .head_dim = 8});
  program.set_phase(Phase::kUpdate);
  program.output("y", scale(qkv, -0.1));
  program.output("norm", h);
  return program;
}

TEST(ProgramText, IsOneLineAThing) { EXPECT_EQ(to_text(sample_program()), kText); }

TEST(ProgramText, ParsesBack) {
  const Program program = sample_program();
  const Program parsed = program_from_text(kText);
  EXPECT_EQ(to_text(parsed), kText);
  ASSERT_EQ(parsed.values().size(), program.values().size());
  for (std::size_t i = 0; i < parsed.values().size(); ++i) {
    EXPECT_EQ(parsed.values()[i].type, program.values()[i].type);
    EXPECT_EQ(parsed.values()[i].role, program.values()[i].role);
    EXPECT_EQ(parsed.values()[i].name, program.values()[i].name);
    EXPECT_EQ(parsed.values()[i].trainable, program.values()[i].trainable);
    EXPECT_EQ(parsed.values()[i].producer, program.values()[i].producer);
  }
  ASSERT_EQ(parsed.nodes().size(), program.nodes().size());
  for (std::size_t i = 0; i < parsed.nodes().size(); ++i) {
    EXPECT_EQ(parsed.nodes()[i].op, program.nodes()[i].op);
    EXPECT_EQ(parsed.nodes()[i].scope, program.nodes()[i].scope);
    EXPECT_EQ(parsed.nodes()[i].phase, program.nodes()[i].phase);
  }
  EXPECT_EQ(parsed.nodes()[2].attributes.as<RopeTableAttributes>().scaling, "llama3");
  EXPECT_EQ(parsed.nodes()[4].attributes.as<ScaleAttributes>().factor, -0.1);
}

TEST(ProgramText, NumbersOfAttributesAreExact) {
  register_operations();
  for (const double factor : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123456789}) {
    Program program;
    program.output("y", scale(program.input("x", {DType::kF64, {1}}), factor));
    const Program parsed = program_from_text(to_text(program));
    const double read = parsed.nodes()[0].attributes.as<ScaleAttributes>().factor;
    EXPECT_EQ(std::signbit(read), std::signbit(factor));
    EXPECT_EQ(read, factor);
  }
}

// Attributes with one field of every type.
struct KindsAttributes {
  bool flag = false;
  std::int64_t number = 0;
  double real = 0;
  std::string text;
  std::string second_text;

  template <class Visitor>
  void fields(Visitor& v) {
    v("flag", flag);
    v("number", number);
    v("real", real);
    v("text", text);
    v("second_text", second_text);
  }
};

class KindsOp final : public Op {
 public:
  std::string_view name() const override { return "kinds"; }
  OpCategory category() const override { return OpCategory::kOther; }
  Attributes default_attributes() const override { return KindsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
};

const KindsOp kKinds;

// Returns up to seven random fragments that are difficult to parse, including arbitrary bytes.
std::string awkward_text(const RandomStream& random, std::uint64_t& at) {
  static constexpr std::array<std::string_view, 22> kPieces{
      "\"",   "\\",      "\n", "\r", "\t", "\x7f", "}",    "{", ",",  "=",
      " ",    "@",       "_",  "%1", "#",  "\\n",  "\\\"", "é", "自", "\xF0\x9F\x98\x80",
      "\xff", "layers.0"};
  std::string text;
  for (std::uint64_t left = random.below(at++, 8); left > 0; --left) {
    const std::uint64_t piece = random.below(at++, kPieces.size() + 1);
    if (piece < kPieces.size())
      text += kPieces[piece];
    else
      text.push_back(static_cast<char>(random.below(at++, 256)));
  }
  return text;
}

std::uint64_t any_bits(const RandomStream& random, std::uint64_t& at) {
  const std::uint64_t high = random.below(at++, std::uint64_t{1} << 32);
  return high << 32 | random.below(at++, std::uint64_t{1} << 32);
}

TEST(ProgramText, EveryKindOfAttributeAndNameIsExact) {
  OpRegistry registry;
  registry.add(kKinds);
  const RandomStream random(3, "program text");
  std::uint64_t at = 0;
  const std::vector<std::int64_t> numbers{
      0, -1, INT64_MAX, INT64_MIN, std::int64_t{1} << 30, (std::int64_t{1} << 53) + 1};
  const std::vector<double> reals{0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 5e-324, -DBL_MAX, 0.1, 1e300};
  for (std::size_t trial = 0; trial < 3000; ++trial) {
    const KindsAttributes wanted{
        .flag = random.below(at++, 2) == 1,
        .number = trial < numbers.size() ? numbers[trial] : static_cast<std::int64_t>(any_bits(random, at)),
        .real = trial < reals.size() ? reals[trial] : std::bit_cast<double>(any_bits(random, at)),
        .text = awkward_text(random, at),
        .second_text = awkward_text(random, at)};
    Program program;
    const std::string name = awkward_text(random, at);
    const std::string scope = awkward_text(random, at);
    const std::string output = awkward_text(random, at);
    const Tensor x = program.input(name, {DType::kF32, {2}});
    (void)program.weight(name, {DType::kF32, {2}});
    program.set_scope(scope);
    program.output(output, program.append1(kKinds, wanted, {x}));
    const std::string text = to_text(program);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
    const Program parsed = program_from_text(text, registry);
    EXPECT_EQ(to_text(parsed), text);
    EXPECT_EQ(parsed.values()[0].name, name);
    EXPECT_EQ(parsed.values()[1].name, name);
    EXPECT_EQ(parsed.nodes()[0].scope, scope);
    EXPECT_EQ(parsed.outputs()[0].name, output);
    const auto& read = parsed.nodes()[0].attributes.as<KindsAttributes>();
    EXPECT_EQ(read.flag, wanted.flag);
    EXPECT_EQ(read.number, wanted.number);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(read.real), std::bit_cast<std::uint64_t>(wanted.real)) << text;
    EXPECT_EQ(read.text, wanted.text);
    EXPECT_EQ(read.second_text, wanted.second_text);
  }
}

// Keys of random streams use all 64 bits of an attribute.
TEST(ProgramText, AProgramThatDrawsWeightsParsesBack) {
  register_operations();
  Program program;
  const Tensor weight = program.weight("w", {DType::kF32, {4}});
  program.output("w", normal_fill(weight, {.key = -6148914691236517206, .deviation = 0.02, .count = 4}));
  const std::string text = to_text(program);
  EXPECT_EQ(to_text(program_from_text(text)), text);
}

TEST(ProgramText, CommentsAndEmptyLinesCount) {
  register_operations();
  const std::string text = "# a program\n\n%4: f32[2] = input \"x\"\n  \n%9: f32[2] = add(%4, %4) forward\n";
  EXPECT_EQ(to_text(program_from_text(text)), "%0: f32[2] = input \"x\"\n%1: f32[2] = add(%0, %0) forward\n");
}

std::string error_of(std::string_view text) {
  register_operations();
  try {
    (void)program_from_text(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ProgramText, ErrorsNameTheLine) {
  const std::string x = "%0: f32[2] = input \"x\"\n";
  struct Case {
    std::string text;
    std::string error;
  };
  const std::vector<Case> cases{
      {x + "%1: f32[2] = ad(%0, %0) forward", "program, line 2: unknown operation 'ad', did you mean add?"},
      {x + "\n%1: f32[2] = add(%0, %3) forward", "program, line 3: %3 is used before it is defined"},
      {x + "%1: f32[3] = add(%0, %0) forward", "program, line 2: add gives f32[2], not f32[3]"},
      {x + "%1: f32[2], %2: f32[2] = add(%0, %0) forward", "program, line 2: add has 1 outputs, not 2"},
      {x + "%1: f32[2] = add(%0) forward", "program, line 2: add: input 1 is missing"},
      {x + "%1: f32[2] = add(%0, %0) forwards", "program, line 2: 'forwards' is not forward, backward or update"},
      {x + "%1: f32[2] = add(%0, %0)", "program, line 2: '' is not forward, backward or update"},
      {x + "%1: f32[2] = add(%0, %0) forward twice", "program, line 2: 'twice' after the end of the statement"},
      {x + "%1: f32[2] = scale(%0) {factr=2} forward", "program, line 2: unknown attribute 'factr'"},
      {x + "%1: f32[2] = scale(%0) {factor=two} forward", "program, line 2: 'two' is not a number"},
      {x + "%1: f32[2] = scale(%0) {factor} forward", "program, line 2: 'factor' is not NAME=VALUE"},
      {x + "%0: f32[2] = input \"y\"", "program, line 2: %0 cannot be defined here"},
      {x + "%1: f32[2] = input \"x\"", "program, line 2: two values are named 'x'"},
      {x + "_: f32[2] = add(%0, %0) forward", "program, line 2: _ cannot be defined here"},
      {x + "output \"y\" = _", "program, line 2: an output needs a value, saw _"},
      {x + "output \"y\" %0", "program, line 2: expected '=' before '%0'"},
      {"%0: f33[2] = input \"x\"", "program, line 1: "},
      {"%0: f32[Cows:2] = input \"x\"", "program, line 1: 'Cows' is not a valid name of a count"},
      {"%0: f32[4294967296, 4294967296] = input \"x\"", "program, line 1: f32[4294967296, 4294967296] is too large"},
      {x + "%1: f32[2] = rope(%0, %0) {heads=4294967296} forward",
       "program, line 2: rope: 4294967296 exceeds the limit of 1073741824"},
      {x + "%1: f32[2] = scale(%0) {factor=9223372036854775808x} forward",
       "program, line 2: '9223372036854775808x' is not a number"},
      {x + "%1: f32[2] = scale(%0) {factor=nan:3ff0000000000000} forward",
       "program, line 2: 'nan:3ff0000000000000' is not a NaN"},
      {"%0: f32[2] = input \"a\\q\"", "program, line 1: '\\q' is not a valid escape"},
      {"%0: f32[2] = input \"a\\x1\"", "program, line 1: '\\x1' is not a valid escape"},
      {"%0: f32[2] = input \"a\\\"", "program, line 1: a closing quote is missing"},
      {x + "%1: f32[2] = fill() {type=\"f32[2]\"\"} forward", "program, line 2: a closing quote is missing"},
      {x + "%1: f32[2] = linear_bias_gradient(%0, _) backward", "program, line 2: linear_bias_gradient: input 1 is"},
      {"%0: f32[-2] = input \"x\"", "program, line 1: '-2' is not a dimension"},
      {"%0: f32[2] = input \"x", "program, line 1: a closing quote is missing"},
      {"%x: f32[2] = input \"x\"", "program, line 1: expected a number after '%'"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(error_of(one.text).substr(0, one.error.size()), one.error) << one.text << "\n" << error_of(one.text);
  }
}

// Truncated or changed text must give a program or throw Error, and nothing else.
TEST(ProgramText, DamagedTextIsAnError) {
  register_operations();
  const auto try_parse = [](const std::string& text) {
    try {
      return to_text(program_from_text(text)).size();
    } catch (const Error&) {
      return std::size_t{0};
    }
  };
  for (std::size_t end = 0; end < kText.size(); ++end) EXPECT_NO_THROW(try_parse(std::string(kText.substr(0, end))));
  constexpr std::string_view kPut = "%_:[]{}()=,\"@ 09zx\n";
  for (std::size_t at = 0; at < kText.size(); ++at) {
    std::string text(kText);
    text[at] = kPut[at % kPut.size()];
    EXPECT_NO_THROW(try_parse(text)) << text;
    text[at] = kPut[(at * 7 + 3) % kPut.size()];
    EXPECT_NO_THROW(try_parse(text)) << text;
  }
}

}  // namespace
}  // namespace hone::test

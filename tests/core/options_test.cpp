#include "core/options.h"
#include "core/json_value.h"

#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone {
namespace {

enum class When : std::uint8_t { kNo, kSteps, kEpoch };
enum class Memory : std::uint8_t { kOff, kOn, kAutomatic };

}  // namespace

template <>
inline constexpr EnumTable kEnumTable<When>{.names = "no|steps|epoch", .aliases = "never=no", .not_yet = "best"};
template <>
inline constexpr EnumTable kEnumTable<Memory>{.names = "false|true|auto"};

namespace {

struct Extras {
  std::optional<double> low;
  std::string mode = "plain";
  template <class Visitor>
  void fields(Visitor& v) {
    v("low", low, "The lowest value", within(0, 1));
    v("mode", mode, "How");
  }
};

struct Sample {
  double rate = 2e-5;
  std::int64_t count = 8;
  std::optional<std::int64_t> limit = 1024;
  bool packing = false;
  std::optional<bool> masked;
  std::string name;
  When when = When::kNo;
  Memory memory = Memory::kAutomatic;
  std::vector<std::string> rewards{"accuracy", "format"};
  std::vector<double> weights;
  Extras extras;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Training");
    v("rate", rate, "Peak rate", above(0));
    v("count", count, "How many", at_least(1));
    v("limit", limit, "Most tokens", at_least(2));
    v("packing", packing, "Pack");
    v("masked", masked, "Mask");
    v.group("Output");
    v("name", name, "Name of the run");
    v("when", when, "When to save");
    v("memory", memory, "Save memory");
    v("rewards", rewards, "Rewards by name");
    v("weights", weights, "Their weights", at_least(0));
    v("extras", extras, "");
    v.alias("max_limit", "limit");
  }
};

constexpr std::array<ForeignKey, 4> kForeign{{
    {"attention", ForeignKey::Kind::kNoEffect, "there is one kernel", "eager"},
    {"workers", ForeignKey::Kind::kNoEffect, "data is read in its own way"},
    {"push", ForeignKey::Kind::kNotYet, "pushing is", "later"},
    {"eight_bit", ForeignKey::Kind::kNever, "8-bit weights are not offered"},
}};

struct Outcome {
  Sample sample;
  OptionInput input;
};

Outcome read_file_text(const std::string& text, const std::vector<std::string>& flags = {}) {
  Outcome outcome;
  const OptionTable table(outcome.sample);
  read_option_keys(table, parse_yaml(text, "f.yaml"), "f.yaml", kForeign, outcome.input);
  read_option_flags(table, flags, kForeign, outcome.input);
  return outcome;
}
Outcome read_flags(const std::vector<std::string>& flags) { return read_file_text("", flags); }

template <class Action>
std::string error_of(const Action& action) {
  try {
    (void)action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Options, ReadsEveryKindFromYaml) {
  const Outcome read = read_file_text(
      "rate: 4.0e-05\ncount: 3\nlimit: null\npacking: yes\nmasked: 'no'\nname: x y\nwhen: epoch\nmemory: true\n"
      "rewards: [a, b, c]\nweights: [1, 0.5]\nextras: {low: 0.1, mode: fast}\n");
  EXPECT_EQ(read.sample.rate, 4e-5);
  EXPECT_EQ(read.sample.count, 3);
  EXPECT_EQ(read.sample.limit, std::nullopt);
  EXPECT_TRUE(read.sample.packing);
  EXPECT_EQ(read.sample.masked, false);
  EXPECT_EQ(read.sample.name, "x y");
  EXPECT_EQ(read.sample.when, When::kEpoch);
  EXPECT_EQ(read.sample.memory, Memory::kOn);
  EXPECT_EQ(read.sample.rewards, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(read.sample.weights, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(read.sample.extras.low, 0.1);
  EXPECT_EQ(read.sample.extras.mode, "fast");
  EXPECT_EQ(read.input.place_of("rate"), "f.yaml:1: rate");
  EXPECT_EQ(read.input.place_of("extras.low"), "f.yaml:11: extras.low");
}

TEST(Options, ReadsEveryKindFromFlags) {
  const Outcome read = read_flags(
      {"--rate",     "1e-3",     "--count=4", "--max-limit",   "7",         "--packing", "--masked", "off",
       "--name=a=b", "--when",   "steps",     "--memory",      "--rewards", "a",         "b",        "--weights",
       "[1, 2.5]",   "--extras", "{low: 1}",  "--extras.mode", "slow",      "--",        "--rest"});
  EXPECT_EQ(read.sample.rate, 1e-3);
  EXPECT_EQ(read.sample.count, 4);
  EXPECT_EQ(read.sample.limit, 7);
  EXPECT_TRUE(read.sample.packing);
  EXPECT_EQ(read.sample.masked, false);
  EXPECT_EQ(read.sample.name, "a=b");
  EXPECT_EQ(read.sample.when, When::kSteps);
  EXPECT_EQ(read.sample.memory, Memory::kOn);
  EXPECT_EQ(read.sample.rewards, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read.sample.weights, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(read.sample.extras.low, 1.0);
  EXPECT_EQ(read.sample.extras.mode, "slow");
  EXPECT_EQ(read.input.positionals, (std::vector<std::string>{"--rest"}));
  EXPECT_EQ(read.input.place_of("count"), "--count");
}

TEST(Options, ABareFlagLeavesTheNextArgumentAlone) {
  const Outcome read = read_flags({"--packing", "model", "--no-masked", "--memory", "auto", "--limit", "null"});
  EXPECT_TRUE(read.sample.packing);
  EXPECT_EQ(read.sample.masked, false);
  EXPECT_EQ(read.sample.memory, Memory::kAutomatic);
  EXPECT_EQ(read.sample.limit, std::nullopt);
  EXPECT_EQ(read.input.positionals, (std::vector<std::string>{"model"}));
}

TEST(Options, ListsTakeCommasBracketsAndScalars) {
  EXPECT_EQ(read_flags({"--rewards", "a, b"}).sample.rewards, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_flags({"--rewards", R"(["a,b", "c"])"}).sample.rewards, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(read_flags({"--rewards="}).sample.rewards, std::vector<std::string>{});
  EXPECT_EQ(read_file_text("rewards: a").sample.rewards, std::vector<std::string>{"a"});
  EXPECT_EQ(read_file_text("rewards: []").sample.rewards, std::vector<std::string>{});
}

TEST(Options, YamlFalseMeansNoWhereAnEnumerationHasIt) {
  for (const char* text : {"no", "'no'", "false", "off", "never"}) {
    EXPECT_EQ(read_file_text(std::string("when: ") + text).sample.when, When::kNo) << text;
  }
  EXPECT_EQ(read_file_text("memory: no").sample.memory, Memory::kOff);
  EXPECT_EQ(read_file_text("memory: on").sample.memory, Memory::kOn);
}

TEST(Options, NullLeavesTheDefaultWhereAValueIsNeeded) {
  const Outcome read = read_file_text("count:\nname: null\nwhen: ~\nextras:\nlimit:\n");
  EXPECT_EQ(read.sample.count, 8);
  EXPECT_EQ(read.sample.when, When::kNo);
  EXPECT_EQ(read.sample.limit, std::nullopt);
}

TEST(Options, FlagsWinOverTheFile) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "r.yaml").string();
  write_file(path, "count: 3\nrate: 0.5\n");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--config", path, "--count", "5"},
                                                    std::vector<std::string>{"--count", "5", "--config=" + path}}) {
    Sample sample;
    const OptionTable table(sample);
    const OptionInput input = read_options(table, arguments);
    EXPECT_EQ(sample.count, 5);
    EXPECT_EQ(sample.rate, 0.5);
    EXPECT_EQ(input.place_of("count"), "--count");
    EXPECT_EQ(input.place_of("rate"), path + ":2: rate");
  }
}

// The file's value of a key that is also given as a flag is not checked, even if it is wrong or not implemented.
TEST(Options, AFlagWinsBeforeTheFileIsJudged) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "r.yaml").string();
  write_file(path,
             "push: true\neight_bit: true\nattention: flash\ncount: none\nmax_limit: 1\npacking: maybe\n"
             "extras: {low: 7, mode: fast}\n");
  const auto read = [&](std::vector<std::string> flags) {
    Outcome outcome;
    flags.insert(flags.begin(), {"--config", path});
    outcome.input = read_options(OptionTable(outcome.sample), flags, kForeign);
    return outcome;
  };
  const Outcome outcome = read({"--push", "false", "--no_eight_bit", "--attention", "eager", "--count", "5", "--limit",
                                "9", "--no-packing", "--extras.low", "0.5"});
  EXPECT_TRUE(outcome.input.notices.empty());
  EXPECT_EQ(outcome.sample.count, 5);
  EXPECT_EQ(outcome.sample.limit, 9);
  EXPECT_FALSE(outcome.sample.packing);
  EXPECT_EQ(outcome.sample.extras.low, 0.5);
  EXPECT_EQ(outcome.sample.extras.mode, "fast");  // keys that the flags do not give come from the file
  const std::vector<std::string> all_but_one{"--push=false", "--eight_bit=false", "--count=5", "--limit=9",
                                             "--packing=false"};
  EXPECT_EQ(error_of([&] { return read(all_but_one); }),
            path + ":7: extras.low: expected a number from 0 to 1, saw '7'");
  std::vector<std::string> whole = all_but_one;
  whole.push_back("--extras={low: 0.25}");
  EXPECT_EQ(read(whole).sample.extras.low, 0.25);
  EXPECT_EQ(read(whole).sample.extras.mode, "fast");
  whole[0] = "--push=true";  // the value of the flag is checked
  EXPECT_EQ(error_of([&] { return read(whole); }),
            "--push: pushing is not implemented yet, saw 'true' (remove the key)");
}

struct WithSecret {
  std::string password;
  template <class Visitor>
  void fields(Visitor& v) {
    v("password", password, "Opens the door");
    v.secret("password");
  }
};

TEST(Options, ASecretIsReadAndNeverPrinted) {
  WithSecret options;
  const std::vector<std::string> flags{"--password", "hunter2"};
  (void)read_options(OptionTable(options), flags);
  EXPECT_EQ(options.password, "hunter2");
  const OptionTable table(options);
  for (const std::string& text :
       {option_json(table).dump(), option_yaml(table), option_help(table), option_markdown(table)}) {
    EXPECT_EQ(text.find("hunter2"), std::string::npos) << text;
  }
  const std::vector<std::string> wrong{"--password=[hunter2]", "--password={hunter2: hunter2}"};
  for (const std::string& flag : wrong) {
    WithSecret other;
    const std::string error =
        error_of([&] { return read_options(OptionTable(other), std::span<const std::string>(&flag, 1)); });
    EXPECT_EQ(error.find("hunter2"), std::string::npos) << error;
  }
  OptionInput input;
  const YamlValue list = parse_yaml("password: [hunter2]", "f.yaml");
  EXPECT_EQ(error_of([&] {
              read_option_keys(table, list, "f.yaml", {}, input);
              return 0;
            }),
            "f.yaml:1: password: expected text");
}

TEST(Options, EnvironmentIsCollected) {
  const Outcome read = read_file_text("env: {A_B: 1, C: 'x=y', D: null}");
  EXPECT_EQ(read.input.environment,
            (std::vector<std::pair<std::string, std::string>>{{"A_B", "1"}, {"C", "x=y"}, {"D", ""}}));
}

TEST(Options, ForeignKeysThatAskForNothingPass) {
  EXPECT_TRUE(read_file_text("push: false\neight_bit: no\nattention: eager\nworkers: []\n").input.notices.empty());
  EXPECT_TRUE(read_file_text("push: later").input.notices.empty());
  EXPECT_TRUE(read_flags({"--push", "none", "--eight_bit=false"}).input.notices.empty());
  EXPECT_EQ(notice_lines(read_file_text("attention: flash\nworkers: {a: 2}\n").input.notices),
            (std::vector<std::string>{"attention has no effect: there is one kernel",
                                      "workers has no effect: data is read in its own way"}));
}

struct BadInput {
  std::string text;
  std::string line;
};

TEST(Options, BadYamlGetsOneExactLine) {
  const std::vector<BadInput> table{
      {"rate: fast", "f.yaml:1: rate: expected a number above 0, saw 'fast'"},
      {"\nrate: 0", "f.yaml:2: rate: expected a number above 0, saw '0'"},
      {"rate: .nan", "f.yaml:1: rate: expected a number above 0, saw '.nan'"},
      {"rate: nan", "f.yaml:1: rate: expected a number above 0, saw 'nan'"},
      {"rate: inf", "f.yaml:1: rate: expected a number above 0, saw 'inf'"},
      {"rate: 1e999", "f.yaml:1: rate: expected a number above 0, saw '1e999'"},
      {"rate: [1]", "f.yaml:1: rate: expected a number above 0, saw [1]"},
      {"count: 2.5", "f.yaml:1: count: expected a whole number of at least 1, saw '2.5'"},
      {"count: 99999999999999999999",
       "f.yaml:1: count: expected a whole number of at least 1, saw '99999999999999999999'"},
      {"count: ''", "f.yaml:1: count: expected a whole number of at least 1, saw ''"},
      {"limit: 1", "f.yaml:1: limit: expected a whole number of at least 2, saw '1'"},
      {"packing: maybe", "f.yaml:1: packing: expected true or false, saw 'maybe'"},
      {"masked: 2", "f.yaml:1: masked: expected true or false, saw '2'"},
      {"name: {a: 1}", "f.yaml:1: name: expected text, saw {a: 1}"},
      {"when: step", "f.yaml:1: when: expected one of no, steps, epoch, saw 'step' (did you mean steps?)"},
      {"when: best", "f.yaml:1: when: 'best' is not implemented yet, expected one of no, steps, epoch"},
      {"when: [no]", "f.yaml:1: when: expected one of no, steps, epoch, saw [no]"},
      {"rewards: {a: 1}", "f.yaml:1: rewards: expected a list, saw {a: 1}"},
      {"weights: [1, x]", "f.yaml:1: weights: expected a list of numbers, each of at least 0, saw 'x'"},
      {"weights: [-1]", "f.yaml:1: weights: expected a list of numbers, each of at least 0, saw '-1'"},
      {"extras: 3", "f.yaml:1: extras: expected a map, saw '3'"},
      {"extras:\n  low: 2", "f.yaml:2: extras.low: expected a number from 0 to 1, saw '2'"},
      {"extras: {lo: 1}", "f.yaml:1: extras.lo: unknown key (did you mean extras.low?)"},
      {"cuont: 3", "f.yaml:1: cuont: unknown key (did you mean count?)"},
      {"zzzzzz: 3", "f.yaml:1: zzzzzz: unknown key (--help lists the keys)"},
      {"eight: 3", "f.yaml:1: eight: unknown key (did you mean eight_bit?)"},
      {"push: true", "f.yaml:1: push: pushing is not implemented yet, saw 'true' (remove the key)"},
      {"eight_bit: yes", "f.yaml:1: eight_bit: 8-bit weights are not offered, saw 'yes' (remove the key)"},
      {"limit: 3\nmax_limit: 4", "f.yaml:2: max_limit: says again what limit said above (keep one of them)"},
      {"- a\n- b", "f.yaml:1: expected lines of `key: value`, saw [a, b]"},
      {"just text", "f.yaml:1: expected lines of `key: value`, saw 'just text'"},
      {"env: 3", "f.yaml:1: env: expected a map of environment variables, saw '3'"},
      {"env: {'A=B': 3}", "f.yaml:1: env: 'A=B' cannot be the name of an environment variable"},
      {"name: |\n  a\nrate: \"x\\ny\"", "f.yaml:3: rate: expected a number above 0, saw 'x\\ny'"},
  };
  for (const BadInput& bad : table) {
    EXPECT_EQ(error_of([&] { return read_file_text(bad.text); }), bad.line) << bad.text;
  }
}

TEST(Options, BadFlagsGetOneExactLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table{
      {{"--rate", "fast"}, "--rate: expected a number above 0, saw 'fast'"},
      {{"--rate"}, "--rate: a value is missing (a number above 0)"},
      {{"--rate", "--count", "1"}, "--rate: a value is missing (a number above 0)"},
      {{"--rewards"}, "--rewards: a value is missing (a list)"},
      {{"--packing=maybe"}, "--packing: expected true or false, saw 'maybe'"},
      {{"--conut", "3"}, "--conut: unknown key (did you mean --count?)"},
      {{"--no-count"}, "--no_count: unknown key (--help lists the keys)"},
      {{"--when", "sometimes"}, "--when: expected one of no, steps, epoch, saw 'sometimes'"},
      {{"--weights", "[1, "}, "--weights: expected a list or a map as YAML or JSON write it, saw '[1, '"},
      {{"--extras", "fast"}, "--extras: expected a map, saw 'fast'"},
      {{"--push"}, "--push: pushing is not implemented yet, saw 'true' (remove the key)"},
      {{"--config"}, "--config: a value is missing (the path of a YAML file)"},
      {{"--config", "--rate"}, "--config: a value is missing (the path of a YAML file)"},
      {{"--config", "a", "--config", "b"}, "--config: given twice, saw 'a' and 'b'"},
      {{"--config", "/nowhere/r.yaml"}, "/nowhere/r.yaml: cannot open: No such file or directory"},
      {{"--limit", "null", "--count", "null"}, "--count: expected a whole number of at least 1, saw 'null'"},
  };
  for (const auto& [flags, line] : table) {
    Sample sample;
    const OptionTable options(sample);
    EXPECT_EQ(error_of([&] { return read_options(options, flags, kForeign); }), line) << flags[0];
  }
}

TEST(Options, HelpShowsGroupsTypesAndDefaults) {
  Sample sample;
  EXPECT_EQ(option_help(OptionTable(sample)),
            "Training:\n"
            "  --rate N                          Peak rate [2e-05]\n"
            "  --count N                         How many [8]\n"
            "  --limit N                         Most tokens [1024]\n"
            "  --packing                         Pack\n"
            "  --masked                          Mask\n"
            "\n"
            "Output:\n"
            "  --name TEXT                       Name of the run\n"
            "  --when NAME                       When to save: no, steps, epoch [no]\n"
            "  --memory NAME                     Save memory: false, true, auto [auto]\n"
            "  --rewards LIST                    Rewards by name [[accuracy, format]]\n"
            "  --weights LIST                    Their weights\n"
            "  --extras.low N                    The lowest value\n"
            "  --extras.mode TEXT                How [plain]\n");
}

TEST(Options, PrintedValuesReadBack) {
  Sample first;
  first.rate = 0.1 + 0.2;
  first.limit.reset();
  first.masked = false;
  first.name = "no: \"x\"\n#";
  first.when = When::kEpoch;
  first.rewards = {"a,b", "yes", ""};
  first.weights = {1, 1e-300};
  first.extras.low = 0.25;
  const std::string json = option_json(OptionTable(first)).dump();
  for (const std::string& text : {option_yaml(OptionTable(first)), json}) {
    const Outcome read = read_file_text(text);
    Sample second = read.sample;
    EXPECT_EQ(option_json(OptionTable(second)).dump(), json) << text;
  }
  EXPECT_EQ(option_json(OptionTable(first))["extras"].dump(), R"({"low":0.25,"mode":"plain"})");
}

TEST(Options, MarkdownHasOneRowAnOption) {
  Sample sample;
  const std::string text = option_markdown(OptionTable(sample));
  EXPECT_NE(text.find("### Training\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
                      "| `rate` | a number above 0 | `2e-05` | Peak rate |\n"),
            std::string::npos)
      << text;
}

struct WithShape {
  YamlValue mixture;
  template <class Visitor>
  void fields(Visitor& v) {
    v("mixture", mixture, "What to mix");
  }
};

TEST(Options, AValueOfAnyShapeIsKeptAndPrinted) {
  WithShape first;
  const OptionTable table(first);
  EXPECT_EQ(table.options()[0].default_text, "");
  const std::vector<std::string> flags = {"--mixture", "{datasets: [{id: a, weight: 0.5}], seed: 1}"};
  (void)read_options(table, flags);
  ASSERT_EQ(first.mixture.kind, YamlValue::Kind::kMap);
  EXPECT_EQ(first.mixture.find("datasets")->items[0].find("weight")->scalar, "0.5");
  WithShape second;
  OptionInput input;
  read_option_keys(OptionTable(second), parse_yaml(option_yaml(table), "printed"), "printed", {}, input);
  EXPECT_EQ(option_json(OptionTable(second)), option_json(table));
  const std::vector<std::string> wrong = {"--mixture", "all"};
  EXPECT_THROW((void)read_options(table, wrong), Error);
}

struct Twice {
  bool a = false;
  template <class Visitor>
  void fields(Visitor& v) {
    v("a", a, "");
    v("a", a, "");
  }
};

TEST(Options, DeclaringANameTwiceIsADefect) {
  Twice twice;
  EXPECT_THROW(OptionTable{twice}, Defect);
}

}  // namespace
}  // namespace hone

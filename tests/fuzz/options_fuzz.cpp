// Fuzz target: options as a YAML file and, after a zero byte, as a command line with one argument per line. The values,
// written as YAML and read again, must be the same.
#include <array>
#include <vector>

#include "core/json_value.h"
#include "core/options.h"
#include "core/strings.h"
#include "fuzz/target.h"

namespace hone {
namespace {

enum class When : std::uint8_t { kNo, kSteps, kEpoch };
enum class Memory : std::uint8_t { kOff, kOn, kAutomatic };

}  // namespace

template <>
inline constexpr EnumTable kEnumTable<When>{.names = "no|steps|epoch", .aliases = "never=no", .not_yet = "best"};
template <>
inline constexpr EnumTable kEnumTable<Memory>{.names = "false|true|auto"};

namespace fuzz {
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

struct Everything {
  double rate = 2e-5;
  std::int64_t count = 8;
  std::optional<std::int64_t> limit = 1024;
  bool packing = false;
  std::optional<bool> masked;
  std::string name;
  std::optional<std::string> note;
  When when = When::kNo;
  Memory memory = Memory::kAutomatic;
  std::vector<std::string> rewards{"accuracy", "format"};
  std::vector<double> weights;
  std::vector<std::int64_t> steps;
  Extras extras;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("All kinds");
    v("rate", rate, "A rate", above(0));
    v("count", count, "How many", at_least(1));
    v("limit", limit, "Most tokens", at_least(2));
    v("packing", packing, "Pack");
    v("masked", masked, "Mask");
    v("name", name, "A name");
    v("note", note, "A note");
    v("when", when, "When to save");
    v("memory", memory, "Save memory");
    v("rewards", rewards, "Rewards by name");
    v("weights", weights, "Their weights", at_least(0));
    v("steps", steps, "At which steps");
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

void check(const OptionTable& table) {
  const std::string text = option_yaml(table);
  Everything other;
  const OptionTable read(other);
  OptionInput input;
  read_option_keys(read, parse_yaml(text, "values"), "values", {}, input);
  HONE_ASSERT(option_json(read) == option_json(table), "other values are read from: ", text);
}

}  // namespace
}  // namespace fuzz
}  // namespace hone

HONE_FUZZ_TARGET(options)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const auto [file, line] = fuzz::parted(fuzz::as_text(data, size), '\0');
  fuzz::Everything options;
  const OptionTable table(options);
  OptionInput input;
  fuzz::accepts(
      [&, &keys = file] { read_option_keys(table, parse_yaml(keys, "f.yaml"), "f.yaml", fuzz::kForeign, input); });
  fuzz::accepts([&, &flags = line] { read_option_flags(table, split(flags, '\n'), fuzz::kForeign, input); });
  fuzz::check(table);
  return 0;
}

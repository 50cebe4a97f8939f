// Fuzz target: a YAML document. Every scalar, written and read again, must be the same.
#include "core/yaml.h"
#include "fuzz/target.h"

namespace hone::fuzz {
namespace {

void check(const YamlValue& value) {
  HONE_ASSERT(!shown(value).empty(), "nothing is shown");
  HONE_ASSERT(shown(value).find('\n') == std::string::npos, "shown on two lines: ", shown(value));
  if (value.kind == YamlValue::Kind::kScalar) {
    const std::string quoted = yaml_quoted(value.scalar);
    const YamlValue back = parse_yaml("k: [" + quoted + ", " + quoted + "]\n", "quoted");
    const YamlValue* list = back.find("k");
    HONE_ASSERT(list != nullptr && list->items.size() == 2 && list->items[0].scalar == value.scalar, quoted,
                " is read");
    HONE_ASSERT(list->items[1].kind == YamlValue::Kind::kScalar, quoted, " is no scalar");
  }
  HONE_ASSERT(value.kind != YamlValue::Kind::kMap || value.keys.size() == value.items.size(), "keys without values");
  for (const std::string& key : value.keys) HONE_ASSERT(value.find(key) != nullptr, key, " is not found");
  for (const YamlValue& item : value.items) check(item);
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(yaml)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  YamlValue document;
  if (fuzz::accepts([&] { document = parse_yaml(fuzz::as_text(data, size), "f.yaml"); })) fuzz::check(document);
  return 0;
}

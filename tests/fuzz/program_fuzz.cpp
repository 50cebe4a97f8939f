// Fuzz target: the text of a program. Reading, printing and reading it again must give the same program.
#include "fuzz/target.h"
#include "ops/registry.h"
#include "program/text.h"

HONE_FUZZ_TARGET(program)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  register_operations();
  std::string printed;
  if (!fuzz::accepts([&] { printed = to_text(program_from_text(fuzz::as_text(data, size))); })) return 0;
  const std::string again = to_text(program_from_text(printed));
  HONE_ASSERT(again == printed, "another program: ", printed, again);
  return 0;
}

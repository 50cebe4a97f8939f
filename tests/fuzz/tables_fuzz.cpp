// Fuzz target: the input as Parquet and as Arrow.
#include <memory>

#include "core/json_value.h"
#include "data/readers.h"
#include "fuzz/target.h"

namespace hone::fuzz {
namespace {

// Limits the time, because few bytes may declare many rows of nulls.
constexpr std::int64_t kMostTableRows = 2'000;

void read_table(const std::unique_ptr<RowReader>& reader) {
  Json row;
  RowPlace place;
  BadRows bad;
  std::int64_t rows = 0;
  while (rows + bad.count() < kMostTableRows && reader->next(row, place, bad)) {
    ++rows;
    HONE_ASSERT(row.is_object() && !row.empty(), "a row is ", row.type_name());
    HONE_ASSERT(place.number > 0, "a row has the number ", place.number);
    HONE_ASSERT(!row.dump().empty(), "a row cannot be printed");
  }
  HONE_ASSERT(bad.describe(rows + bad.count()).find('\n') == std::string::npos, "bad rows on two lines");
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(tables)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  static fuzz::MemoryFile file;
  file.set(fuzz::as_text(data, size));
  fuzz::accepts([&] { fuzz::read_table(make_parquet_reader(file.path())); });
  fuzz::accepts([&] { fuzz::read_table(make_arrow_reader(file.path())); });
  return 0;
}

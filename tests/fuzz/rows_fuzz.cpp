// Fuzz target: the input as JSON Lines, a JSON array, CSV and text, compressed or not. Its rows are rendered as
// training text and as prompts.
#include <memory>

#include "core/json_value.h"
#include "core/unicode.h"
#include "data/columns.h"
#include "data/readers.h"
#include "data/render.h"
#include "fuzz/target.h"
#include "text/chat_template.h"

namespace hone::fuzz {
namespace {

constexpr std::int64_t kMostRows = 10'000;  // limits the time, because few bytes may decompress to many rows

void render(const Json& row) {
  static const ChatTemplate chat_template(chatml_template());
  accepts([&] {
    const RenderedRow rendered = render_row(row, chat_template, {}, {});
    std::size_t end = 0;
    for (const auto& [from, to] : rendered.targets) {
      HONE_ASSERT(end <= from && from <= to && to <= rendered.text.size(), "learns [", from, ", ", to, ")");
      end = to;
    }
  });
  accepts([&] {
    const std::string_view column = prompt_column_of(row, {});
    const Json messages = is_text(row, column) ? Json::array({{{"role", "user"}, {"content", text_in(row, column)}}})
                                               : messages_in(row, column);
    (void)render_prompt(messages, chat_template, row_variables(row, {}));
  });
}

void read(const std::unique_ptr<RowReader>& reader) {
  Json row;
  RowPlace place;
  BadRows bad;
  std::int64_t rows = 0;
  while (rows < kMostRows && reader->next(row, place, bad)) {
    ++rows;
    HONE_ASSERT(row.is_object() && !row.empty(), "a row is ", row.type_name());
    HONE_ASSERT(place.number > 0, "a row is in line ", place.number);
    render(row);
  }
  HONE_ASSERT(bad.describe(rows + bad.count()).find('\n') == std::string::npos, "bad rows on two lines");
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(rows)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  static fuzz::MemoryFile file;
  file.set(fuzz::as_text(data, size));
  fuzz::accepts([&] { fuzz::read(make_json_reader(file.path())); });
  for (const Compression compression : {Compression::kNone, Compression::kGzip, Compression::kZstd}) {
    fuzz::accepts([&] { fuzz::read(make_jsonl_reader(file.path(), compression)); });
    fuzz::accepts([&] { fuzz::read(make_csv_reader(file.path(), compression, ',')); });
  }
  for (const SampleBy sample_by : {SampleBy::kDocument, SampleBy::kParagraph, SampleBy::kLine}) {
    fuzz::accepts([&] { fuzz::read(make_text_reader(file.path(), Compression::kNone, sample_by)); });
  }
  return 0;
}

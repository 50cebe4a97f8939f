#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/chunk_stream.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

class WholeText final : public RowReader {
 public:
  WholeText(const fs::path& path, Compression compression)
      : chunks_(open_chunks(path, compression)), name_(std::make_shared<std::string>(path.string())) {}

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    if (std::exchange(done_, true)) return false;
    place = {name_, "line", 1};
    std::string text;
    for (std::string_view chunk = chunks_->next(); !chunk.empty(); chunk = chunks_->next()) text += chunk;
    if (trim(text).empty()) {
      bad.add(place, "no text");
      return false;
    }
    row = {{"text", std::move(text)}};
    return true;
  }

 private:
  std::unique_ptr<ChunkStream> chunks_;
  std::shared_ptr<const std::string> name_;
  bool done_ = false;
};

class TextLines final : public RowReader {
 public:
  TextLines(const fs::path& path, Compression compression)
      : lines_(path, compression), name_(std::make_shared<std::string>(path.string())) {}

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    std::string_view line;
    while (lines_.next(line)) {
      place = {name_, "line", lines_.number()};
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!trim(line).empty()) {
        row = {{"text", std::string(line)}};
        return true;
      }
      bad.add(place, "no text");
    }
    return false;
  }

 private:
  LineScanner lines_;
  std::shared_ptr<const std::string> name_;
};

// Paragraphs are separated by blank lines.
class TextParagraphs final : public RowReader {
 public:
  TextParagraphs(const fs::path& path, Compression compression)
      : lines_(path, compression), name_(std::make_shared<std::string>(path.string())) {}

  bool next(Json& row, RowPlace& place, BadRows&) override {
    std::string text;
    std::string_view line;
    while (lines_.next(line)) {
      if (trim(line).empty()) {
        if (!text.empty()) break;
        continue;
      }
      if (text.empty()) place = {name_, "line", lines_.number()};
      if (text.size() + line.size() > kLongestRow) {
        throw Error(*name_, text_of("the paragraph that begins in line ", place.number, " is longer than ",
                                    format_bytes(kLongestRow)));
      }
      text += line;
      text += '\n';
    }
    if (text.empty()) return false;
    text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    row = {{"text", std::move(text)}};
    return true;
  }

 private:
  LineScanner lines_;
  std::shared_ptr<const std::string> name_;
};

}  // namespace

std::unique_ptr<RowReader> make_text_reader(const fs::path& path, Compression compression, SampleBy sample_by) {
  switch (sample_by) {
    case SampleBy::kDocument:
      break;
    case SampleBy::kLine:
      return std::make_unique<TextLines>(path, compression);
    case SampleBy::kParagraph:
      return std::make_unique<TextParagraphs>(path, compression);
  }
  return std::make_unique<WholeText>(path, compression);
}

}  // namespace hone

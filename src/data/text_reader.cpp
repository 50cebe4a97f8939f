#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/strings.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

class TextFile final : public RowReader {
 public:
  TextFile(const fs::path& path, SampleBy sample_by)
      : file_(path), name_(std::make_shared<std::string>(path.string())), rest_(file_.text()), sample_by_(sample_by) {}

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (!at_end_) {
      std::int64_t line = line_ + 1;
      const std::string_view text = take(line);
      place = {name_, "line", line};
      if (!trim(text).empty()) {
        row = {{"text", std::string(text)}};
        return true;
      }
      // Blank lines part paragraphs, and a last one is the end of the file.
      if (sample_by_ != SampleBy::paragraph && (!at_end_ || line_ <= 1)) bad.add(place, "no text");
    }
    return false;
  }

 private:
  // The next document, without its last newline unless it is the whole file; `line` becomes its first line.
  std::string_view take(std::int64_t& line) {
    switch (sample_by_) {
      case SampleBy::document:
        at_end_ = true;
        return rest_;
      case SampleBy::line:
        return take_line();
      case SampleBy::paragraph:
        return take_paragraph(line);
    }
    return {};
  }

  std::string_view take_line() {
    const std::size_t end = rest_.find('\n');
    std::string_view text = rest_.substr(0, end);
    at_end_ = end == std::string_view::npos;
    rest_.remove_prefix(at_end_ ? rest_.size() : end + 1);
    ++line_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }

  std::string_view take_paragraph(std::int64_t& line) {
    const char* begin = nullptr;
    const char* end = nullptr;
    while (!at_end_) {
      const std::string_view text = take_line();
      if (trim(text).empty()) {
        if (begin != nullptr) break;
        continue;
      }
      if (begin == nullptr) {
        begin = text.data();
        line = line_;
      }
      end = text.data() + text.size();
    }
    return begin == nullptr ? std::string_view{} : std::string_view(begin, static_cast<std::size_t>(end - begin));
  }

  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  std::string_view rest_;
  SampleBy sample_by_;
  std::int64_t line_ = 0;
  bool at_end_ = false;
};

}  // namespace

std::unique_ptr<RowReader> make_text_reader(const fs::path& path, SampleBy sample_by) {
  return std::make_unique<TextFile>(path, sample_by);
}

}  // namespace hone

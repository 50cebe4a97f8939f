#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/chunk_stream.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Returns why a row is unusable, or "" if it is an object with at least one column.
std::string_view fault_of(const Json& row) {
  if (!row.is_object()) return "not a JSON object";
  return row.empty() ? "empty object" : "";
}

class JsonLines final : public RowReader {
 public:
  JsonLines(const fs::path& path, Compression compression)
      : lines_(path, compression), name_(std::make_shared<std::string>(path.string())) {}

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    std::string_view line;
    while (lines_.next(line)) {
      if (trim(line).empty()) {
        ++blank_;
        continue;
      }
      // Blank lines are reported only if another line follows them, so those at the end of the file are not.
      for (; blank_ > 0; --blank_) bad.add({name_, "line", lines_.number() - blank_}, "empty line");
      place = {name_, "line", lines_.number()};
      const std::string fault = parse(line, row);
      if (fault.empty()) return true;
      bad.add(place, fault);
    }
    return false;
  }

 private:
  static std::string parse(std::string_view line, Json& row) {
    if (is_too_deep_json(line)) return text_of("nested deeper than ", kMaxJsonDepth);
    try {
      row = Json::parse(line);
    } catch (const nlohmann::json::parse_error& error) {
      return text_of("not valid JSON (column ", error.byte, ")");
    } catch (const nlohmann::json::exception&) {
      return "not valid JSON (a number is out of range)";
    }
    return std::string(fault_of(row));
  }

  LineScanner lines_;
  std::shared_ptr<const std::string> name_;
  std::int64_t blank_ = 0;  // blank lines since the last other line
};

// Reads the elements of a JSON array one at a time.
class JsonArray final : public RowReader {
 public:
  JsonArray(const fs::path& path, Compression compression)
      : chunks_(open_text_chunks(path, compression)), name_(std::make_shared<std::string>(path.string())) {}

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (!done_ && take_element()) {
      place = {name_, "row", ++number_};
      row = parse_json(element_, text_of(*name_, " row ", number_, ", which begins in line ", begin_line_));
      const std::string_view fault = fault_of(row);
      if (fault.empty()) return true;
      bad.add(place, fault);
    }
    return false;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(*name_, text_of("not valid JSON at line ", line_, ": ", what));
  }

  // Sets `c` to the next character; returns false at the end of the text.
  bool peek(char& c) {
    if (rest_.empty()) rest_ = chunks_->next();
    if (rest_.empty()) return false;
    c = rest_.front();
    return true;
  }
  void skip() {
    line_ += rest_.front() == '\n' ? 1 : 0;
    rest_.remove_prefix(1);
  }
  // Skips white space and returns the next character, which must exist.
  char peek_mark() {
    char c = ' ';
    while (peek(c) && kWhiteSpace.find(c) != std::string_view::npos) skip();
    if (rest_.empty()) fail("the array does not end");
    return c;
  }

  // Reads the text of the next element, whose syntax is checked later; returns false after the last one.
  bool take_element() {
    const char mark = peek_mark();  // '[' before the first element, otherwise the separator after the previous one
    if (number_ > 0 && mark == ']') return finish();
    skip();
    if (peek_mark() == ']' && number_ == 0) return finish();
    begin_line_ = line_;
    element_.clear();
    int depth = 0;
    bool in_string = false;
    for (char c = 0; peek(c); skip()) {
      if (in_string) {
        if (c == '\\') {
          append(c);
          skip();
          if (!peek(c)) break;
        } else if (c == '"') {
          in_string = false;
        }
      } else if (c == '"') {
        in_string = true;
      } else if (c == '[' || c == '{') {
        if (++depth >= kMaxJsonDepth) fail(text_of("nested deeper than ", kMaxJsonDepth));
      } else if (depth == 0 && (c == ',' || c == ']')) {
        return true;
      } else if (c == ']' || c == '}') {
        if (--depth < 0) fail("a closing bracket has no opening one");
      }
      append(c);
    }
    fail("the array does not end");
  }

  void append(char c) {
    element_ += c;
    if (element_.size() > kLongestRow) fail(text_of("a row is longer than ", format_bytes(kLongestRow)));
  }

  bool finish() {
    skip();
    char c = ' ';
    while (peek(c) && kWhiteSpace.find(c) != std::string_view::npos) skip();
    if (!rest_.empty()) fail("text after the array");
    done_ = true;
    return false;
  }

  std::unique_ptr<ChunkStream> chunks_;
  std::shared_ptr<const std::string> name_;
  std::string_view rest_;
  std::string element_;
  std::int64_t number_ = 0;
  std::int64_t line_ = 1;
  std::int64_t begin_line_ = 1;
  bool done_ = false;
};

bool is_array(const fs::path& path, Compression compression) {
  const auto chunks = open_text_chunks(path, compression);
  for (std::string_view chunk = chunks->next(); !chunk.empty(); chunk = chunks->next()) {
    const std::size_t at = chunk.find_first_not_of(kWhiteSpace);
    if (at != std::string_view::npos) return chunk[at] == '[';
  }
  return false;
}

}  // namespace

std::unique_ptr<RowReader> make_jsonl_reader(const fs::path& path, Compression compression) {
  return std::make_unique<JsonLines>(path, compression);
}

std::unique_ptr<RowReader> make_json_reader(const fs::path& path, Compression compression) {
  if (is_array(path, compression)) return std::make_unique<JsonArray>(path, compression);
  return make_jsonl_reader(path, compression);
}

}  // namespace hone

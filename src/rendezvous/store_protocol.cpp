#include "rendezvous/store_protocol.h"

#include <array>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kWhere = "store";

// Reads arguments one after the other. After the first that is not complete, complete() is false and the rest is empty.
class ArgumentReader {
 public:
  explicit ArgumentReader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] std::size_t position() const { return position_; }

  template <class T>
  T number() {
    T value{};
    if (const std::string_view bytes = take(sizeof(T)); complete_) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string text(std::string_view what, std::size_t most) {
    const auto length = number<std::uint64_t>();
    if (length > most) throw Error(kWhere, text_of("a ", what, " has ", length, " bytes"), text_of("at most ", most));
    return std::string(take(static_cast<std::size_t>(length)));
  }
  std::string key() { return text("key", kMostKeyBytes); }
  std::string value() { return text("value", kMostValueBytes); }
  std::size_t count() {
    const auto count = number<std::uint64_t>();
    if (count > kMostKeysInMessage)
      throw Error(kWhere, text_of("a request has ", count, " keys"), text_of("at most ", kMostKeysInMessage));
    return static_cast<std::size_t>(count);
  }

 private:
  std::string_view take(std::size_t count) {
    complete_ = complete_ && bytes_.size() - position_ >= count;
    if (!complete_) return {};
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }

  std::string_view bytes_;
  std::size_t position_ = 0;
  bool complete_ = true;
};

// The arguments of a query after its keys and values.
enum class Numbers : std::uint8_t { kNone, kAmount, kNumber };

struct Layout {
  std::optional<std::size_t> keys;  // unset: the request states their number
  std::size_t values = 0;           // after each key
  Numbers numbers = Numbers::kNone;
};

Layout layout_of(StoreQuery query) {
  switch (query) {
    case StoreQuery::kValidate:
    case StoreQuery::kPing:
      return {.keys = 0, .numbers = Numbers::kNumber};
    case StoreQuery::kCountKeys:
    case StoreQuery::kCancelWait:
      return {.keys = 0};
    case StoreQuery::kSet:
    case StoreQuery::kAppend:
      return {.keys = 1, .values = 1};
    case StoreQuery::kCompareSet:
      return {.keys = 1, .values = 2};
    case StoreQuery::kGet:
    case StoreQuery::kDeleteKey:
      return {.keys = 1};
    case StoreQuery::kAdd:
      return {.keys = 1, .numbers = Numbers::kAmount};
    case StoreQuery::kCheck:
    case StoreQuery::kWait:
    case StoreQuery::kMultiGet:
      return {};
    case StoreQuery::kMultiSet:
      return {.keys = {}, .values = 1};
  }
  throw Error(kWhere, text_of("there is no query ", static_cast<int>(query)));
}

template <class T>
void append_raw(std::string& message, T number) {
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &number, sizeof(T));
  message.append(bytes.data(), bytes.size());
}

}  // namespace

std::size_t read_store_request(std::string_view bytes, StoreRequest& request) {
  if (bytes.empty()) return 0;
  request = {.query = static_cast<StoreQuery>(bytes.front())};
  const Layout layout = layout_of(request.query);
  ArgumentReader reader(bytes.substr(1));
  const std::size_t keys = layout.keys ? *layout.keys : reader.count();
  for (std::size_t i = 0; i < keys && reader.complete(); ++i) {
    request.keys.push_back(reader.key());
    for (std::size_t v = 0; v < layout.values; ++v) request.values.push_back(reader.value());
  }
  if (layout.numbers == Numbers::kAmount) request.amount = reader.number<std::int64_t>();
  if (layout.numbers == Numbers::kNumber) request.number = reader.number<std::uint32_t>();
  if (reader.complete()) return 1 + reader.position();
  if (bytes.size() >= kMostMessageBytes)
    throw Error(kWhere, text_of("a request has more than ", bytes.size(), " bytes"));
  return 0;
}

std::string bytes_of(const StoreRequest& request) {
  const Layout layout = layout_of(request.query);
  std::string message(1, static_cast<char>(request.query));
  if (!layout.keys) append_number(message, static_cast<std::int64_t>(request.keys.size()));
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    append_value(message, request.keys[i]);
    for (std::size_t v = 0; v < layout.values; ++v) append_value(message, request.values[i * layout.values + v]);
  }
  if (layout.numbers == Numbers::kAmount) append_number(message, request.amount);
  if (layout.numbers == Numbers::kNumber) append_raw(message, request.number);
  return message;
}

void append_number(std::string& message, std::int64_t number) { append_raw(message, number); }

void append_value(std::string& message, std::string_view value) {
  append_raw(message, static_cast<std::uint64_t>(value.size()));
  message += value;
}

}  // namespace hone

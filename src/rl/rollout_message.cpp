#include "rl/rollout_message.h"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

template <class T>
concept Plain = std::is_trivially_copyable_v<T>;

// Appends values to a message. Vectors and texts begin with the number of their elements.
class Writer {
 public:
  template <Plain T>
  void operator()(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(const std::string& text) { elements(text); }
  template <Plain T>
  void operator()(const std::vector<T>& values) {
    elements(values);
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  template <class Elements>
  void elements(const Elements& values) {
    (*this)(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  }

  std::string bytes_;
};

// Reads them in the same order.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <Plain T>
  void operator()(T& value) {
    std::memcpy(&value, take(sizeof value), sizeof value);
  }
  void operator()(std::string& text) { elements(text); }
  template <Plain T>
  void operator()(std::vector<T>& values) {
    elements(values);
  }
  void expect_end() const {
    HONE_ASSERT(rest_.empty(), "a message of a rollout has ", rest_.size(), " bytes too many");
  }

 private:
  const char* take(std::size_t bytes) {
    HONE_ASSERT(bytes <= rest_.size(), "a message of a rollout ends early");
    const char* begin = rest_.data();
    rest_.remove_prefix(bytes);
    return begin;
  }
  template <class Elements>
  void elements(Elements& values) {
    std::size_t count = 0;
    (*this)(count);
    const std::size_t size = sizeof values[0];
    HONE_ASSERT(count <= rest_.size() / size, "a message of a rollout ends early");
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), take(count * size), count * size);
  }

  std::string_view rest_;
};

template <class T, class Of>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Of>;

// Returns references to the fields of an object of a message.
auto fields(MaybeConst<PolicySample> auto& sample) {
  return std::tie(sample.prompt, sample.completion, sample.logps, sample.importance, sample.ref_logps, sample.truncated,
                  sample.advantage);
}
auto fields(MaybeConst<ScoredCompletion> auto& judged) {
  return std::tie(judged.prompt, judged.prompt_text, judged.completion, judged.rewards, judged.finish_reason);
}
auto fields(MaybeConst<DrawnTokens> auto& drawn) { return std::tie(drawn.tokens, drawn.logps); }

// Calls each(field) for the fields in their order.
void visit(auto& object, auto& each) {
  std::apply([&](auto&... field) { (each(field), ...); }, fields(object));
}

template <class Object>
void write_objects(Writer& writer, std::span<const Object> objects) {
  writer(objects.size());
  for (const Object& object : objects) visit(object, writer);
}

// Adds the objects to those before.
template <class Object>
void read_objects(Reader& reader, std::vector<Object>& objects) {
  std::size_t count = 0;
  reader(count);
  for (std::size_t i = 0; i < count; ++i) visit(objects.emplace_back(), reader);
}

// The times of a rollout that a message has.
constexpr double Rollout::* kTimes[] = {&Rollout::generation_seconds, &Rollout::reward_seconds,
                                        &Rollout::logprob_seconds, &Rollout::reference_seconds};

}  // namespace

std::string to_message(const Rollout& rollout) {
  Writer writer;
  write_objects<PolicySample>(writer, rollout.samples);
  write_objects<ScoredCompletion>(writer, rollout.judged);
  writer(rollout.stale);
  write_objects<DrawnTokens>(writer, rollout.begun_ahead);
  for (const auto time : kTimes) writer(rollout.*time);
  return writer.take();
}

void append_message(std::string_view message, Rollout& rollout) {
  Reader reader(message);
  read_objects(reader, rollout.samples);
  read_objects(reader, rollout.judged);
  std::vector<std::size_t> stale;
  reader(stale);
  std::ranges::move(stale, std::back_inserter(rollout.stale));
  read_objects(reader, rollout.begun_ahead);
  for (const auto time : kTimes) {
    double seconds = 0;
    reader(seconds);
    rollout.*time = std::max(rollout.*time, seconds);
  }
  reader.expect_end();
}

std::string to_message(std::span<const DrawnTokens> drawn) {
  Writer writer;
  write_objects(writer, drawn);
  return writer.take();
}

void append_message(std::string_view message, std::vector<DrawnTokens>& drawn) {
  Reader reader(message);
  read_objects(reader, drawn);
  reader.expect_end();
}

}  // namespace hone

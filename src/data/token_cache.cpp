#include "data/token_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
#include <thread>
#include <utility>

#include "core/digest.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/cache_entry.h"
#include "system/cache_folder.h"
#include "system/process.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

// Returns the file's status once the clock that stamps files is past its last change, after some milliseconds at most.
// Any later change then has a different timestamp. A timestamp in the future is not waited for.
struct stat settled_file_status(const fs::path& path) {
  struct stat status{};
  for (int wait = 0; wait < 50; ++wait) {
    if (::stat(path.c_str(), &status) != 0) throw Error(path.string(), text_of("cannot read: ", std::strerror(errno)));
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (nanoseconds(now) > std::max(nanoseconds(status.st_mtim), nanoseconds(status.st_ctim))) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

void add_file(Fingerprint& fingerprint, const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) throw Error(path.string(), text_of("cannot read: ", error.message()));
  const struct stat status = settled_file_status(real);
  fingerprint.add(real.string());
  fingerprint.add(std::int64_t{status.st_size});
  fingerprint.add(nanoseconds(status.st_mtim));
  fingerprint.add(nanoseconds(status.st_ctim));
}

// The functions below use structured bindings, so a new member of an options struct fails to compile until it is added
// to the fingerprint.
void add_source(Fingerprint& fingerprint, const Source& source) {
  const auto& [sample_by, split] = source.options();
  fingerprint.add(static_cast<std::int64_t>(sample_by));
  fingerprint.add(split);
  fingerprint.add(std::ssize(source.parts()));
  for (const auto& [files, columns, kept] : source.parts()) {
    fingerprint.add(std::ssize(files));
    for (const fs::path& file : files) add_file(fingerprint, file);
    fingerprint.add(std::ssize(columns));
    for (const std::string& column : columns) fingerprint.add(column);
    std::string flags(kept.size(), '0');
    std::ranges::transform(kept, flags.begin(), [](bool flag) { return flag ? '1' : '0'; });
    fingerprint.add(flags);
  }
  const std::span<const std::uint32_t> order = source.order();
  fingerprint.add(std::string_view(reinterpret_cast<const char*>(order.data()), order.size_bytes()));
}

void add_columns(Fingerprint& fingerprint, const ColumnOptions& columns) {
  const auto& [text_field, prompt_column, system_prompt] = columns;
  for (const std::string* name : {&text_field, &prompt_column, &system_prompt}) fingerprint.add(*name);
}

void add_options(Fingerprint& fingerprint, const EncodeOptions& options) {
  const auto& [columns, loss, max_length, tokens_only, eos_optional] = options;
  fingerprint.add("examples");
  add_columns(fingerprint, columns);
  fingerprint.add(static_cast<std::int64_t>(loss));
  fingerprint.add(max_length);
  fingerprint.add(std::int64_t{tokens_only});
  fingerprint.add(std::int64_t{eos_optional});
}

void add_options(Fingerprint& fingerprint, const PromptOptions& options) {
  const auto& [columns, max_prompt_length] = options;
  fingerprint.add("prompts");
  add_columns(fingerprint, columns);
  fingerprint.add(max_prompt_length);
}

template <class Options>
std::string key_of(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                   const Options& options) {
  Fingerprint fingerprint;
  add_file(fingerprint, "/proc/self/exe");  // another build may encode differently
  add_source(fingerprint, source);
  fingerprint.add(tokenizer.digest());
  fingerprint.add(chat_template.source());
  fingerprint.add(chat_template.local_time());
  add_options(fingerprint, options);
  return fingerprint.finish();
}

std::string written(const EncodingReport& report) {
  return Json{{"rows", report.rows},     {"examples", report.examples},
              {"tokens", report.tokens}, {"target_tokens", report.target_tokens},
              {"cut", report.cut},       {"bad", report.bad.written()}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

EncodingReport read_report(const std::string& head) {
  const Json json = parse_json(head, "its report");
  return {.rows = json.at("rows").get<std::int64_t>(),
          .examples = json.at("examples").get<std::int64_t>(),
          .tokens = json.at("tokens").get<std::int64_t>(),
          .target_tokens = json.at("target_tokens").get<std::int64_t>(),
          .cut = json.at("cut").get<std::int64_t>(),
          .bad = BadRows::read(json.at("bad"))};
}

template <class T>
std::span<const T> array_of(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(T) != 0) throw Error("the size of an array is not a multiple of its element size");
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
std::span<const std::byte> bytes_of_array(std::span<const T> array) {
  return std::as_bytes(array);
}

void require_ascending(std::span<const std::int64_t> values, std::size_t last) {
  const bool ends = !values.empty() && values.front() >= 0 && values.back() == static_cast<std::int64_t>(last);
  if (!ends || !std::ranges::is_sorted(values)) throw Error("its offsets are not ascending");
}

void require_ids(std::span<const TokenId> tokens, const Tokenizer& tokenizer) {
  if (tokens.empty()) return;
  const auto [least, most] = std::ranges::minmax(tokens);
  if (least < 0 || most >= tokenizer.vocab_size()) throw Error("it has ids outside of the tokenizer's vocabulary");
}

// The two sections_of and read_set pairs define the layout of an entry.
std::vector<std::span<const std::byte>> sections_of(const ExampleSet& set) {
  return {bytes_of_array(set.tokens()), bytes_of_array(set.is_target()), bytes_of_array(set.offsets())};
}

std::vector<std::span<const std::byte>> sections_of(const PromptSet& set) {
  const auto [tokens, texts, token_ends, row_ends, prefill_ends] = set.arrays();
  return {bytes_of_array(tokens), std::as_bytes(std::span(texts)), bytes_of_array(token_ends), bytes_of_array(row_ends),
          bytes_of_array(prefill_ends)};
}

void read_set(const CacheEntry& entry, const Tokenizer& tokenizer, ExampleSet& set) {
  if (entry.sections.size() != 3) throw Error("it has the wrong number of sections");
  const auto tokens = array_of<TokenId>(entry.sections[0]);
  const auto is_target = array_of<std::uint8_t>(entry.sections[1]);
  const auto offsets = array_of<std::int64_t>(entry.sections[2]);
  require_ascending(offsets, tokens.size());
  if (offsets.front() != 0) throw Error("its offsets do not begin at 0");
  if (!is_target.empty() && is_target.size() != tokens.size()) throw Error("its mask and its tokens differ in length");
  require_ids(tokens, tokenizer);
  set = ExampleSet(tokens, is_target, offsets, entry.owner);
}

void read_set(const CacheEntry& entry, const Tokenizer& tokenizer, PromptSet& set) {
  if (entry.sections.size() != 5) throw Error("it has the wrong number of sections");
  const auto tokens = array_of<TokenId>(entry.sections[0]);
  const auto texts = array_of<char>(entry.sections[1]);
  const auto token_ends = array_of<std::int64_t>(entry.sections[2]);
  const auto row_ends = array_of<std::int64_t>(entry.sections[3]);
  const auto prefill_ends = array_of<std::int64_t>(entry.sections[4]);
  require_ascending(token_ends, tokens.size());
  if (row_ends.size() != token_ends.size() || prefill_ends.size() != row_ends.size()) {
    throw Error("its arrays of offsets differ in length");
  }
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < row_ends.size(); ++i) {
    all.push_back(row_ends[i]);
    all.push_back(prefill_ends[i]);
  }
  require_ascending(all, texts.size());
  require_ids(tokens, tokenizer);
  set = PromptSet::copy_of({tokens, {texts.data(), texts.size()}, token_ends, row_ends, prefill_ends});
}

template <class Set>
bool load(const fs::path& path, const std::string& key, const Tokenizer& tokenizer, Set& set, EncodingReport& report) {
  const std::optional<CacheEntry> entry = read_cache_entry(path, key);
  if (!entry) return false;
  try {
    EncodingReport kept = read_report(entry->head);
    read_set(*entry, tokenizer, set);
    report = std::move(kept);
    return true;
  } catch (const Error& error) {
    log_warning(text_of(path.string(), " is not used: ", error.what()));
  } catch (const Json::exception& error) {
    log_warning(text_of(path.string(), " is not used: ", error.what()));
  }
  return false;
}

// Loads the set, or encodes and stores it. `key()` computes the current fingerprint; `encode(report)` returns the set.
template <class Set, class Key, class Encode>
Set from_cache_or(const fs::path& folder, bool writes, const Source& source, const Tokenizer& tokenizer,
                  EncodingReport& report, const Key& key, const Encode& encode) {
  report = {};
  if (folder.empty()) return encode(report);
  const std::string before = key();
  const fs::path path = folder / (before + ".tokens");
  Set set;
  if (load(path, before, tokenizer, set, report)) {
    log_info(text_of(source.name(), ": ", format_count(report.examples),
                     report.examples == 1 ? " example of " : " examples of ", format_count(report.tokens),
                     " tokens loaded from the cache: ", path.string()));
    return set;
  }
  // Encode, and store the result only if no input changed meanwhile.
  set = encode(report);
  if (!writes || key() != before) return set;  // files changed meanwhile: the key does not describe what was encoded
  try {
    write_cache_entry(path, before, written(report), sections_of(set));
    remove_old_entries(folder);
  } catch (const Error& error) {
    log_once(text_of("encoded data is not cached: ", error.what()));
    return set;
  }
  // Use the mapped file instead of process memory: the kernel can drop its pages and read them again.
  Set mapped;
  return load(path, before, tokenizer, mapped, report) ? mapped : set;
}

}  // namespace

ExampleSet TokenCache::examples(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                const EncodeOptions& options, EncodingReport& report) const {
  return from_cache_or<ExampleSet>(
      folder_, writes_, source, tokenizer, report, [&] { return key_of(source, tokenizer, chat_template, options); },
      [&](EncodingReport& own) { return encode_examples(source, tokenizer, chat_template, options, own); });
}

PromptSet TokenCache::prompts(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                              const PromptOptions& options, EncodingReport& report) const {
  return from_cache_or<PromptSet>(
      folder_, writes_, source, tokenizer, report, [&] { return key_of(source, tokenizer, chat_template, options); },
      [&](EncodingReport& own) { return encode_prompts(source, tokenizer, chat_template, options, own); });
}

fs::path token_cache_folder() {
  const fs::path folder = cache_folder();
  return folder.empty() ? fs::path() : folder / "tokens";
}

}  // namespace hone

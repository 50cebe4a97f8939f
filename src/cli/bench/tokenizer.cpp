#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>

#include "checkpoint/model_directory.h"
#include "cli/bench/documents.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/files.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "model/loaded_model.h"

namespace hone {
namespace {

struct TokenizerBenchOptions {
  std::string tokenizer_name_or_path;
  std::vector<std::string> files;
  std::int64_t vocab_size = 8192;
  std::int64_t mebibytes = 4;
  double seconds = 1;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Tokenizer");
    v("tokenizer_name_or_path", tokenizer_name_or_path,
      "Folder of a tokenizer, or its name on the hub; unset: one is trained on the text, which is timed too");
    v("files", files, "Text files to encode; unset: generated problems with solutions");
    v("vocab_size", vocab_size, "Tokens of the tokenizer that is trained", within(300, 1'000'000));
    v("mebibytes", mebibytes, "Most text that is encoded, in MiB", within(1, 4096));
    v.group("Measurement");
    v("seconds", seconds, "Seconds of measurement for each figure", above(0));
    v("json", json, "JSON file to write the results to");
  }
};

std::vector<std::string> documents_to_encode(const TokenizerBenchOptions& options) {
  constexpr std::size_t kDocument = 16 << 10;  // bytes; files are cut into such parts
  const auto most = static_cast<std::size_t>(options.mebibytes) << 20;
  if (options.files.empty()) return generated_documents(static_cast<std::int64_t>(most));
  std::vector<std::string> documents;
  std::size_t bytes = 0;
  for (const std::string& file : options.files) {
    const std::string text = read_file(file);
    for (std::size_t at = 0; at < text.size() && bytes < most; at += kDocument) {
      documents.push_back(text.substr(at, kDocument));
      bytes += documents.back().size();
    }
  }
  if (documents.empty()) throw Error("files", "have no text");
  return documents;
}

// Prints figures of the same text and keeps them.
class TextTable {
 public:
  TextTable(std::string shape, double bytes, double tokens)
      : shape_(std::move(shape)), bytes_(bytes), tokens_(tokens) {}
  void add(const char* what, double seconds) {
    std::printf("%-28s %10.1f MB/s %14s tokens/s\n", what, bytes_ / seconds * 1e-6,
                format_count(static_cast<std::int64_t>(tokens_ / seconds)).c_str());
    std::fflush(stdout);
    rows_.push_back({text_of("tokenizer ", what), shape_, bytes_ / seconds * 1e-6, "MB/s"});
    rows_.push_back({text_of("tokenizer ", what), shape_, tokens_ / seconds, "tokens/s"});
  }
  [[nodiscard]] std::span<const ResultRow> rows() const { return rows_; }

 private:
  std::string shape_;
  double bytes_;
  double tokens_;
  std::vector<ResultRow> rows_;
};

std::vector<std::vector<TokenId>> encoded_in_parallel(const Tokenizer& tokenizer,
                                                      const std::vector<std::string>& documents) {
  std::vector<std::vector<TokenId>> ids(documents.size());
  parallel_for(std::ssize(documents), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      ids[i] = tokenizer.encode(documents[i]);
  });
  return ids;
}

int tokenizer_bench(TokenizerBenchOptions& options, const OptionInput&, const std::string& command) {
  const std::vector<std::string> documents = documents_to_encode(options);
  const bool trains = options.tokenizer_name_or_path.empty();
  const auto start = Clock::now();
  const Tokenizer tokenizer = trains ? trained_tokenizer(documents, options.vocab_size)
                                     : load_tokenizer(resolve_model(options.tokenizer_name_or_path));
  const double training = seconds_since(start);

  const std::vector<std::vector<TokenId>> ids = encoded_in_parallel(tokenizer, documents);
  std::size_t bytes = 0;
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    bytes += documents[i].size();
    tokens += ids[i].size();
  }
  const std::string shape =
      text_of(trains ? "trained" : options.tokenizer_name_or_path, ", ", format_count(tokenizer.vocab_size()),
              " tokens, ", options.files.empty() ? "generated text" : "files", " of ", format_bytes(bytes));
  std::printf("%s; %.2f bytes a token\n", shape.c_str(), static_cast<double>(bytes) / static_cast<double>(tokens));
  TextTable table(shape, static_cast<double>(bytes), static_cast<double>(tokens));
  if (trains) table.add("training", training);
  const auto measure = [&](const std::function<void()>& run) {
    return seconds_per_run(cpu_device(), run, options.seconds);
  };
  std::size_t sum = 0;  // keeps results in use
  table.add("encoding, one thread", measure([&] {
              for (const std::string& document : documents) sum += tokenizer.encode(document).size();
            }));
  table.add("encoding, all threads", measure([&] { sum += encoded_in_parallel(tokenizer, documents).size(); }));
  table.add("decoding, one thread", measure([&] {
              for (const std::vector<TokenId>& each : ids) sum += tokenizer.decode(each).size();
            }));
  HONE_ASSERT(sum > 0, "nothing was encoded");
  if (!options.json.empty()) {
    write_results(options.json, table.rows(), cpu_device().name(), command);
  }
  return 0;
}

}  // namespace

BenchKind bench_tokenizer() {
  return bench_kind("tokenizer", "text to tokens and back, in one thread and in all", tokenizer_bench);
}

}  // namespace hone

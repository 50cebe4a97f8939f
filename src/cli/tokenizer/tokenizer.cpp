// hone tokenizer: train a byte-level BPE; encode, decode, count.
#include "text/tokenizer.h"

#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"

namespace hone {
namespace {

struct TokenizerOptions {
  std::string tokenizer;
  std::vector<std::string> input;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Tokenizer");
    v("tokenizer", tokenizer, "encode, decode, count: folder of the tokenizer");
    v("input", input, "encode, decode, count: files to read, in place of arguments or standard input");
  }
};

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string read_standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  return text;
}

Tokenizer load(const TokenizerOptions& options) {
  if (options.tokenizer.empty()) throw Error("--tokenizer", "is not set", "the folder of tokenizer.json");
  return Tokenizer::load(options.tokenizer);
}

// What to work on: the words after the action, else the files, else standard input.
std::string text_to_read(const TokenizerOptions& options, const OptionInput& input) {
  const std::span<const std::string> words = std::span(input.positionals).subspan(1);
  if (!words.empty() && !options.input.empty()) {
    throw Error("--input", "text is given as arguments too", "give one of them");
  }
  if (!words.empty()) return join(words, " ");
  if (options.input.empty()) return read_standard_input();
  std::string text;
  for (const std::string& file : options.input) text += read_file(file);
  return text;
}

int encode(const TokenizerOptions& options, const OptionInput& input) {
  const Tokenizer tokenizer = load(options);
  std::string line;
  for (const TokenId id : tokenizer.encode(text_to_read(options, input))) {
    line += text_of(line.empty() ? "" : " ", id);
  }
  print(line + "\n");
  return 0;
}

int decode(const TokenizerOptions& options, const OptionInput& input) {
  const Tokenizer tokenizer = load(options);
  std::string text = text_to_read(options, input);
  for (char& c : text) {
    if (c == ',' || c == '[' || c == ']' || c == '\n' || c == '\t' || c == '\r') c = ' ';
  }
  std::vector<TokenId> ids;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    TokenId id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= tokenizer.vocab_size()) {
      throw Error("hone tokenizer decode",
                  text_of("expected ids from 0 to ", tokenizer.vocab_size() - 1, ", saw ", shown(word)));
    }
    ids.push_back(id);
  }
  print(tokenizer.decode(ids) + "\n");
  return 0;
}

int count(const TokenizerOptions& options, const OptionInput& input) {
  const Tokenizer tokenizer = load(options);
  const std::string text = text_to_read(options, input);
  const auto tokens = static_cast<std::int64_t>(tokenizer.encode(text).size());
  const auto bytes = static_cast<std::int64_t>(text.size());
  print(text_of(format_count(tokens), " tokens, ", format_count(bytes), " bytes"));
  if (tokens > 0) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, ", %.3f bytes a token",
                  static_cast<double>(bytes) / static_cast<double>(tokens));
    print(ratio);
  }
  print("\n");
  return 0;
}

int run(const TokenizerOptions& options, const OptionInput& input) {
  const std::string action = input.positionals.empty() ? "" : input.positionals[0];
  if (action == "encode") return encode(options, input);
  if (action == "decode") return decode(options, input);
  if (action == "count") return count(options, input);
  throw Error("hone tokenizer", text_of("expected encode, decode or count, saw ", shown(action)),
              "for example hone tokenizer count --tokenizer DIR --input FILE");
}

}  // namespace

void register_tokenizer(CommandRegistry& registry) {
  registry.add(make_command<TokenizerOptions>({.name = "tokenizer",
                                               .summary = "Train a byte-level BPE; encode, decode, count",
                                               .positionals = "encode|decode|count [TEXT ...]"},
                                              run));
}

}  // namespace hone

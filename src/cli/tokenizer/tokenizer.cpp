// hone tokenizer: trains a byte-level BPE tokenizer; encodes, decodes and counts tokens.
#include "text/tokenizer.h"
#include "core/json_value.h"

#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/strings.h"
#include "core/terminal.h"
#include "data/columns.h"
#include "data/source.h"
#include "text/bpe_trainer.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<BpeTrainerOptions::Kind>{.names = "gpt2|qwen2|characters"};

namespace {

struct TokenizerOptions {
  std::vector<std::string> input;
  std::string tokenizer;
  BpeTrainerOptions train;
  std::string dataset_text_field = "text";
  std::string output;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("All");
    v("input", input,
      "train: files or folders of text, JSON Lines, Parquet ...; otherwise: files to read instead of "
      "arguments or standard input");
    v.group("encode, decode, count");
    v("tokenizer", tokenizer, "Folder of the tokenizer");
    v.group("train");
    v("type", train.kind, "Byte-level BPE with the split pattern of GPT-2 or Qwen 2, or one token per character");
    v("vocab_size", train.vocab_size, "Number of tokens, including special tokens and the 256 bytes",
      within(1, 10'000'000));
    v("min_frequency", train.min_frequency, "Minimum frequency of a pair of tokens to merge", at_least(0));
    v("special_tokens", train.special_tokens, "Special tokens, which get the first ids in this order");
    v("eos_token", train.eos_token, "Special token that ends a text");
    v("dataset_text_field", dataset_text_field, "Column of the text");
    v("output", output, "Folder to write the tokenizer to");
  }
};

void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string read_standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  return text;
}

Tokenizer load(const TokenizerOptions& options) {
  if (options.tokenizer.empty()) throw Error("--tokenizer", "is not set", "the folder of tokenizer.json");
  return Tokenizer::load(options.tokenizer);
}

// Returns the text to process: the arguments after the action, otherwise the files of --input, otherwise standard
// input.
std::string text_to_read(const TokenizerOptions& options, const OptionInput& input) {
  const std::span<const std::string> words = std::span(input.positionals).subspan(1);
  if (!words.empty() && !options.input.empty()) {
    throw Error("--input", "cannot be combined with text as arguments", "remove one of them");
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
  print_text(line + "\n");
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
  const std::string decoded = tokenizer.decode(ids);
  print_text((is_terminal(OutputStream::kStandardOutput) ? printable(decoded) : decoded) + "\n");
  return 0;
}

int count(const TokenizerOptions& options, const OptionInput& input) {
  const Tokenizer tokenizer = load(options);
  const std::string text = text_to_read(options, input);
  const auto tokens = static_cast<std::int64_t>(tokenizer.encode(text).size());
  const auto bytes = static_cast<std::int64_t>(text.size());
  print_text(text_of(format_count(tokens), " tokens, ", format_count(bytes), " bytes"));
  if (tokens > 0) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, ", %.3f bytes/token", static_cast<double>(bytes) / static_cast<double>(tokens));
    print_text(ratio);
  }
  print_text("\n");
  return 0;
}

int train(const TokenizerOptions& options, const OptionInput& input) {
  if (input.positionals.size() > 1) {
    throw Error("hone tokenizer train", text_of("unexpected argument ", shown(input.positionals[1])),
                "name files with --input, a recipe with --config");
  }
  if (options.input.empty()) throw Error("--input", "is not set", "the files or folders to train on");
  if (options.output.empty()) throw Error("--output", "is not set", "the folder to write the tokenizer to");
  ensure_writable_folder(options.output, "--output");
  BpeTrainer trainer(options.train);
  BadRows bad;
  std::int64_t taken = 0;
  {
    Progress progress("Reading", 0, "document");
    for (const std::string& path : options.input) {
      Source(path, {}).for_each_row(bad, [&](Json& row, const RowPlace& place) {
        const std::int64_t bad_before = bad.count();
        try {
          if (row.contains("messages") && !row.contains(options.dataset_text_field)) {
            for (const Json& message : messages_in(row, "messages")) trainer.add(text_in(message, "content"));
          } else if (row.contains(options.dataset_text_field)) {
            trainer.add(text_in(row, options.dataset_text_field));
          } else {
            bad.add(place, text_of("has neither a column ", shown(options.dataset_text_field), " nor messages"));
          }
        } catch (const Error& error) {
          bad.add(place, error.what());
        }
        if (bad.count() == bad_before) ++taken;
        progress.advance();
      });
    }
  }
  if (bad.count() > 0) log_warning(bad.describe(taken + bad.count()));
  const Tokenizer tokenizer = trainer.train();
  tokenizer.save(options.output);
  print_text(text_of("wrote ", options.output, ": ", format_count(tokenizer.vocab_size()), " tokens\n"));
  return 0;
}

int run(const TokenizerOptions& options, const OptionInput& input) {
  const std::string action = input.positionals.empty() ? "" : input.positionals[0];
  if (action == "train") return train(options, input);
  if (action == "encode") return encode(options, input);
  if (action == "decode") return decode(options, input);
  if (action == "count") return count(options, input);
  throw Error("hone tokenizer", text_of("expected train, encode, decode or count, saw ", shown(action)),
              "for example hone tokenizer count --tokenizer DIR --input FILE");
}

}  // namespace

void register_tokenizer(CommandRegistry& registry) {
  registry.add(make_command<TokenizerOptions>({.name = "tokenizer",
                                               .summary = "Train a byte-level BPE tokenizer; encode, decode, count",
                                               .positionals = "train|encode|decode|count [TEXT ...]",
                                               .recipe = RecipeArgument::kRefused},
                                              run));
}

}  // namespace hone

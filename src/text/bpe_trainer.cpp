#include "text/bpe_trainer.h"

#include <algorithm>
#include <set>

#include "core/unicode.h"
#include "text/byte_alphabet.h"
#include "text/json_fields.h"
#include "text/pair_merger.h"

namespace hone {
namespace {

constexpr std::string_view kWhere = "tokenizer training";

Json normalizer_json(BpeTrainerOptions::Kind kind) {
  return kind == BpeTrainerOptions::Kind::kQwen2 ? Json{{"type", "NFC"}} : Json();
}

Json byte_level_json(bool use_regex) {
  return Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer_json(BpeTrainerOptions::Kind kind) {
  if (kind == BpeTrainerOptions::Kind::kCharacters) return Json();
  if (kind == BpeTrainerOptions::Kind::kGpt2) return byte_level_json(true);
  const Json split{
      {"type", "Split"}, {"pattern", Json{{"Regex", kQwen2Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level_json(false)})}};
}

Tokenizer assemble(const BpeTrainerOptions& options, Json vocabulary, Json merges) {
  const bool characters = options.kind == BpeTrainerOptions::Kind::kCharacters;
  Json added = Json::array();
  for (const std::string& token : options.special_tokens) {
    added.push_back(Json{{"id", vocabulary[token]},
                         {"content", token},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
  }
  const Json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", std::move(vocabulary)},
                   {"merges", std::move(merges)}};
  const Json json{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", std::move(added)},
                  {"normalizer", normalizer_json(options.kind)},
                  {"pre_tokenizer", pre_tokenizer_json(options.kind)},
                  {"post_processor", nullptr},
                  {"decoder", characters ? Json{{"type", "Fuse"}} : byte_level_json(true)},
                  {"model", model}};
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!options.eos_token.empty()) config["eos_token"] = options.eos_token;
  return Tokenizer::from_json(json.dump(), config.dump(), kWhere);
}

// Returns an object from names to ids. Entries are appended, because a search for each name would be slow.
Json vocabulary_json(const std::vector<std::string>& names) {
  Json vocabulary = Json::object();
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  entries.reserve(names.size());
  for (std::size_t id = 0; id < names.size(); ++id) entries.emplace_back(names[id], id);
  return vocabulary;
}

void check(const BpeTrainerOptions& options) {
  std::set<std::string> seen;
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || !is_valid_utf8(token)) throw Error(kWhere, "a special token is empty or not valid UTF-8");
    if (!seen.insert(token).second) throw Error(kWhere, text_of("the special token ", token, " is given twice"));
    const bool taken = options.kind == BpeTrainerOptions::Kind::kCharacters
                           ? count_code_points(token) == 1
                           : alphabet_to_bytes(token).value_or("").size() == 1;
    if (taken) throw Error(kWhere, text_of("the special token ", token, " is a single character"), "use a longer one");
  }
  if (!options.eos_token.empty() && !seen.contains(options.eos_token)) {
    throw Error(kWhere, text_of("the eos_token ", options.eos_token, " is not one of the special tokens"));
  }
  const auto least = static_cast<std::int64_t>(256 + options.special_tokens.size());
  if (options.kind != BpeTrainerOptions::Kind::kCharacters &&
      (options.vocab_size < least || options.vocab_size > kMostTokens)) {
    throw Error(kWhere, text_of("vocab_size is ", options.vocab_size, ", expected ", least,
                                " (the bytes and the special tokens) to ", kMostTokens));
  }
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainerOptions options)
    : options_(std::move(options)),
      normalizer_(normalizer_json(options_.kind), kWhere),
      pre_tokenizer_(pre_tokenizer_json(options_.kind), kWhere) {
  check(options_);
}

void BpeTrainer::add(std::string_view document) {
  std::string text = is_valid_utf8(document) ? std::string() : replace_invalid_utf8(document);
  if (!text.empty()) document = text;
  if (!normalizer_.is_identity()) {
    text = normalizer_.apply(document);
    document = text;
  }
  const auto count = [&](std::string_view word) {
    if (const auto found = words_.find(word); found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(word, 1);
    }
  };
  if (options_.kind == BpeTrainerOptions::Kind::kCharacters) {
    for (std::size_t at = 0; at < document.size();) {
      const std::size_t size = decode_utf8(document, at).size;
      count(document.substr(at, size));
      at += size;
    }
    return;
  }
  Pieces pieces;
  pre_tokenizer_.split(document, pieces, true);
  for (const std::string_view word : pieces.views) count(word);
}

Tokenizer BpeTrainer::train() const {
  if (words_.empty()) throw Error(kWhere, "no text to train on");
  if (options_.kind == BpeTrainerOptions::Kind::kCharacters) {
    std::vector<std::string> names;
    names.reserve(words_.size() + options_.special_tokens.size());
    for (const auto& [character, count] : words_) names.push_back(character);
    std::sort(names.begin(), names.end());  // UTF-8 sorts by code point
    names.insert(names.end(), options_.special_tokens.begin(), options_.special_tokens.end());
    return assemble(options_, vocabulary_json(names), Json::array());
  }

  // The reference sorts the alphabet by its characters, not by the bytes that they represent.
  std::vector<std::string> symbols = options_.special_tokens;
  std::array<unsigned char, 256> order{};
  for (unsigned byte = 0; byte < 256; ++byte) order[byte] = static_cast<unsigned char>(byte);
  std::sort(order.begin(), order.end(),
            [](unsigned char a, unsigned char b) { return byte_character(a) < byte_character(b); });
  std::array<TokenId, 256> byte_ids{};
  for (const unsigned char byte : order) {
    byte_ids[byte] = static_cast<TokenId>(symbols.size());
    symbols.push_back(bytes_to_alphabet(std::string(1, static_cast<char>(byte))));
  }

  PairMerger merger(std::move(symbols));
  for (const auto& [word, count] : words_) {
    std::vector<TokenId> ids;
    ids.reserve(word.size());
    for (const char byte : word) ids.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    merger.add_word(std::move(ids), count);
  }
  merger.run(options_.vocab_size, options_.min_frequency);

  Json merges = Json::array();
  for (const auto& [left, right] : merger.merges()) {
    merges.push_back(merger.symbols()[static_cast<std::size_t>(left)] + " " +
                     merger.symbols()[static_cast<std::size_t>(right)]);
  }
  return assemble(options_, vocabulary_json(merger.symbols()), std::move(merges));
}

}  // namespace hone

#include "text/ranks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "core/strings.h"
#include "text/byte_alphabet.h"
#include "text/json_fields.h"
#include "text/split_patterns.h"
#include "text/tokenizer_config.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

struct KnownRanks {
  std::string_view name = {};
  std::size_t count = 0;
  std::string_view pattern;
  bool nfc = false;
  // Special tokens from the id `count` on, separated by spaces. The last word may contain "%d"; it is repeated with 0,
  // 1, ... in its place until there are `specials` tokens.
  std::string_view words = {};
  std::size_t specials = 0;
};
constexpr KnownRanks kKnown[] = {
    {"Llama 3", 128'000, kLlama3Pattern, false,
     "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
     "<|finetune_right_pad_id|> <|step_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|> <|python_tag|> "
     "<|image|> <|reserved_special_token_%d|>",
     256},
    {"Qwen", 151'643, kQwen2Pattern, true, "<|endoftext|> <|im_start|> <|im_end|> <|extra_%d|>", 208},
    {"Qwen 3.5", 248'044, kQwen35Pattern, true,
     "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
     "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
     "<tool_call> "
     "</tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> "
     "</tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> "
     "<tts_text_bos_single> <|audio_pad|>",
     33},
    {"Llama 4", 200'000, kO200kPattern, false, "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_%d|>", 2048},
    {"GPT-2", 50'256, kGpt2Pattern, false, "<|endoftext|>", 1},
    {"cl100k_base", 100'256, kLlama3Pattern, false, "", 0},
    {"o200k_base", 199'998, kO200kPattern, false, "", 0},
};

std::string known_counts() {
  std::string text;
  for (const KnownRanks& known : kKnown) {
    text += text_of(text.empty() ? "" : ", ", known.name, " ", known.count);
  }
  return text;
}

struct Rank {
  std::string bytes;
  TokenId rank;
};

std::vector<Rank> parse_ranks(std::string_view text, std::string_view where) {
  const std::string_view head = text.substr(0, 1024);
  const bool is_text = std::all_of(head.begin(), head.end(), [](char c) { return c == '\n' || c == '\r' || c >= ' '; });
  std::vector<Rank> ranks;
  int line_number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    std::string bytes =
        space == std::string_view::npos ? std::string() : decode_base64(line.substr(0, space)).value_or("");
    TokenId rank = -1;
    const char* end = line.data() + line.size();
    const bool whole = !bytes.empty() && std::from_chars(line.data() + space + 1, end, rank).ptr == end;
    if (!whole || rank < 0 || rank >= kMostTokens) {
      throw Error(where, text_of("line ", line_number, " is not a base64 token and its rank"),
                  is_text ? "" : "SentencePiece models are not supported: convert it to tokenizer.json");
    }
    ranks.push_back({std::move(bytes), rank});
  }
  if (ranks.empty()) throw Error(where, "has no ranks");
  return ranks;
}

using RankByBytes = std::unordered_map<std::string_view, TokenId>;

// Returns all pairs of tokens that form a token, ordered by its rank, then by theirs.
BpeModel::Merges derive_merges(const std::vector<Rank>& ranks, const RankByBytes& by_bytes) {
  BpeModel::Merges merges;
  std::vector<std::array<TokenId, 2>> pairs;
  std::unordered_map<TokenId, const std::string*> names;
  std::vector<std::string> alphabet(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    alphabet[i] = bytes_to_alphabet(ranks[i].bytes);
    names[ranks[i].rank] = &alphabet[i];
  }
  for (const Rank& token : ranks) {
    pairs.clear();
    const std::string_view bytes = token.bytes;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = by_bytes.find(bytes.substr(0, cut));
      if (left == by_bytes.end()) continue;
      const auto right = by_bytes.find(bytes.substr(cut));
      if (right != by_bytes.end()) pairs.push_back({left->second, right->second});
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [left, right] : pairs) merges.emplace_back(*names[left], *names[right]);
  }
  return merges;
}

KnownRanks known_ranks(std::size_t count, const Json& config, std::string_view where) {
  const Json& pattern = member(config, "pat_str");  // the result refers to it
  if (pattern.is_string()) return {.count = count, .pattern = pattern.get_ref<const std::string&>()};
  if (!pattern.is_null()) throw Error(where, text_of("pat_str is ", pattern.type_name(), ", expected a string"));
  for (const KnownRanks& known : kKnown) {
    if (known.count == count) return known;
  }
  throw Error(where,
              text_of("has ", count, " ranks, which matches no known split pattern (known: ", known_counts(), ")"),
              "add the pattern as pat_str to tokenizer_config.json, or convert the file to tokenizer.json");
}

std::vector<AddedToken> special_tokens(const KnownRanks& known) {
  std::vector<AddedToken> tokens;
  std::string_view words = known.words;
  std::size_t number = known.name == "Llama 3" ? 2 : 0;  // numbers 0 and 1 are listed separately
  while (tokens.size() < known.specials) {
    std::string word(words.substr(0, words.find(' ')));
    if (const std::size_t place = word.find("%d"); place != std::string::npos) {
      word.replace(place, 2, std::to_string(number++));
    } else {
      words.remove_prefix(std::min(words.size(), word.size() + 1));
    }
    tokens.push_back({.id = static_cast<TokenId>(known.count + tokens.size()),
                      .content = std::move(word),
                      .normalized = false,
                      .special = true});
  }
  return tokens;
}

std::string parts_of(const KnownRanks& known) {
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json split{
      {"type", "Split"}, {"pattern", Json{{"Regex", known.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  Json json{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", Json::array()}};
  json["normalizer"] = known.nfc ? Json{{"type", "NFC"}} : Json(nullptr);
  json["pre_tokenizer"] = Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  json["model"] =
      Json{{"type", "BPE"},          {"dropout", nullptr},    {"unk_token", nullptr},    {"fuse_unk", false},
           {"byte_fallback", false}, {"ignore_merges", true}, {"vocab", Json::object()}, {"merges", Json::array()}};
  return json.dump();
}

}  // namespace

fs::path find_ranks(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".tiktoken") found.push_back(entry.path());
  }
  if (found.size() > 1) {
    throw Error(folder.string(), text_of("has ", found.size(), " .tiktoken files"), "keep only the one to use");
  }
  if (!found.empty()) return found.front();
  return fs::exists(folder / "tokenizer.model") ? folder / "tokenizer.model" : fs::path();
}

TokenizerFile read_ranks(std::string_view text, std::string_view config_json, std::string_view where) {
  std::vector<Rank> ranks = parse_ranks(text, where);
  std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) { return a.rank < b.rank; });
  const Json config_file = config_json.empty() ? Json::object() : parse_json(config_json, where);
  const KnownRanks known = known_ranks(ranks.size(), config_file, where);
  RankByBytes by_bytes;
  by_bytes.reserve(ranks.size());
  for (const Rank& token : ranks) {
    if (!by_bytes.emplace(token.bytes, token.rank).second) {
      throw Error(where, text_of("the token of rank ", token.rank, " is listed twice"));
    }
  }
  TokenizerFile file;
  file.merges = derive_merges(ranks, by_bytes);
  for (const Rank& token : ranks) file.vocabulary.emplace_back(bytes_to_alphabet(token.bytes), token.rank);
  if (!config_json.empty()) {
    const TokenizerConfig config(config_json, where);
    for (const AddedToken& token : config.tokens()) {
      if (token.id >= 0) file.added_tokens.push_back(token);
    }
  }
  if (file.added_tokens.empty()) file.added_tokens = special_tokens(known);
  file.rest = parts_of(known);
  return file;
}

}  // namespace hone

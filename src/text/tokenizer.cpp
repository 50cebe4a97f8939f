#include "text/tokenizer.h"

#include <algorithm>
#include <map>

#include "core/digest.h"
#include "core/files.h"
#include "core/unicode.h"
#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/ranks.h"
#include "text/token_decoder.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_file.h"

namespace hone {
namespace fs = std::filesystem;

struct Tokenizer::Data {
  Data(const TokenizerFile& file, const Json& json, std::string_view where)
      : rest(file.rest),
        normalizer(member(json, "normalizer"), where),
        pre_tokenizer(member(json, "pre_tokenizer"), where),
        decoder(member(json, "decoder"), where),
        model(std::make_shared<const BpeModel>(
            file.vocabulary, file.merges, read_model_options(member(json, "model"), pre_tokenizer.byte_level(), where),
            where)),
        around(read_surrounding_tokens(member(json, "post_processor"), where)) {
    for (const AddedToken& token : file.added_tokens) add(token, where);
  }

  void add(AddedToken token, std::string_view where) {
    if (token.content.empty()) return;
    if (const auto known = model->token_id(token.content); known && *known != token.id) {
      throw Error(where, text_of("the added token ", token.content, " has the id ", token.id, ", but ", *known,
                                 " in the vocabulary"));
    }
    if (const auto same = by_content.find(token.content); same != by_content.end() && same->second != token.id) {
      throw Error(where, text_of("the added token ", token.content, " has two ids, ", same->second, " and ", token.id));
    }
    const auto [place, is_new] = added.try_emplace(token.id, token);
    if (!is_new && place->second.content != token.content) {
      throw Error(where, text_of("the added tokens ", place->second.content, " and ", token.content,
                                 " have the same id ", token.id));
    }
    place->second = token;
    by_content[token.content] = token.id;
  }

  // Derives the tables of encode and decode. Called after the last add.
  void finish(std::string_view where) {
    if (next_id() == 0) throw Error(where, "has no tokens");
    bytes.assign(static_cast<std::size_t>(next_id()), {});
    texts.assign(decoder.byte_level() ? 0 : bytes.size(), {});
    for (const auto& [token, id] : model->vocabulary()) set_text(id, token);
    raw_tokens = {};
    normalized_tokens = {};
    for (const auto& [id, token] : added) {
      const std::string content = token.normalized ? normalizer.apply(token.content) : token.content;
      set_text(id, token.content);
      (token.normalized ? normalized_tokens : raw_tokens).add(token, content);
    }
  }

  void set_text(TokenId id, const std::string& token) {
    const auto at = static_cast<std::size_t>(id);
    bytes[at] = decoder.bytes_of(token);
    if (!texts.empty()) texts[at] = token;
  }

  [[nodiscard]] std::optional<TokenId> find(std::string_view token) const {
    if (const auto found = by_content.find(token); found != by_content.end()) return found->second;
    return model->token_id(token);
  }

  // Returns the largest id + 1.
  [[nodiscard]] TokenId next_id() const {
    const TokenId next = model->vocabulary().empty() ? 0 : model->vocabulary().back().second + 1;
    return added.empty() ? next : std::max(next, added.rbegin()->first + 1);
  }

  std::string rest;  // tokenizer.json without vocabulary, merges and added tokens, as JSON text
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::shared_ptr<const BpeModel> model;
  SurroundingTokens around;
  std::map<TokenId, AddedToken> added;
  std::map<std::string, TokenId, std::less<>> by_content;
  TokenizerConfig config;

  std::vector<std::string> bytes;  // by id
  std::vector<std::string> texts;  // [ids] text that the decoder takes; empty if it takes bytes
  AddedTokenMatcher raw_tokens;
  AddedTokenMatcher normalized_tokens;
  std::shared_ptr<WordCachePool> caches = std::make_shared<WordCachePool>();
};

Tokenizer::Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_json, std::string_view where) {
  return from_file(TokenizerFile(tokenizer_json, where), config_json, where);
}

Tokenizer Tokenizer::from_ranks(std::string_view ranks, std::string_view config_json, std::string_view where) {
  return from_file(read_ranks(ranks, config_json, where), config_json, where);
}

Tokenizer Tokenizer::from_file(const TokenizerFile& file, std::string_view config_json, std::string_view where) {
  const Json json = Json::parse(file.rest);
  auto data = std::make_shared<Data>(file, json, where);
  data->finish(where);
  for (const auto* ids : {&data->around.leading, &data->around.trailing}) {
    for (const TokenId id : *ids) {
      if (id < 0 || id >= data->next_id())
        throw Error(where, text_of("the post_processor's id ", id, " is not a token"));
    }
  }
  if (!config_json.empty()) {
    data->config = TokenizerConfig(config_json, where);
    // As in transformers, special tokens that the config names are recognized even if tokenizer.json does not list
    // them.
    bool changed = false;
    for (AddedToken token : data->config.tokens()) {
      if (data->by_content.contains(token.content)) continue;
      token.id = data->find(token.content).value_or(data->next_id());
      data->add(token, where);
      changed = true;
    }
    if (changed) data->finish(where);
  }
  return Tokenizer(std::move(data));
}

Tokenizer Tokenizer::load(const fs::path& folder) {
  const fs::path config = folder / "tokenizer_config.json";
  const fs::path chat_template = folder / "chat_template.jinja";
  fs::path file = folder / "tokenizer.json";
  const bool has_json = fs::exists(file);
  if (!has_json) file = find_ranks(folder);
  if (file.empty()) {
    throw Error(folder.string(), "has no tokenizer.json and no tiktoken ranks",
                "point to a model folder in the Hugging Face form");
  }
  const std::string config_json = fs::exists(config) ? read_file(config) : std::string();
  Tokenizer tokenizer = has_json ? from_json(read_file(file), config_json, file.string())
                                 : from_ranks(read_file(file), config_json, file.string());
  if (fs::exists(chat_template)) tokenizer.set_chat_template(read_file(chat_template));
  return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 8);
  std::string mended;
  if (!is_valid_utf8(text)) {
    mended = replace_invalid_utf8(text);
    text = mended;
  }
  WordCachePool::Lease cache(*data_->caches);
  Pieces pieces;
  bool at_start = true;  // nothing precedes this piece
  const auto encode_plain = [&](std::string_view plain) {
    pieces.views.clear();
    pieces.changed.clear();
    data_->pre_tokenizer.split(plain, pieces, std::exchange(at_start, false));
    for (const std::string_view piece : pieces.views) data_->model->encode(piece, *cache, ids);
  };
  const auto encode_segments = [&](std::string_view part, const AddedTokenMatcher& matcher, const auto& encode_rest) {
    if (matcher.empty()) return encode_rest(part);
    for (const auto& segment : matcher.split(part)) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        at_start = false;
      } else {
        encode_rest(segment.text);
      }
    }
  };
  encode_segments(text, data_->raw_tokens, [&](std::string_view raw) {
    if (data_->normalizer.is_identity()) return encode_segments(raw, data_->normalized_tokens, encode_plain);
    const std::string normalized = data_->normalizer.apply(raw);
    encode_segments(normalized, data_->normalized_tokens, encode_plain);
  });
  return ids;
}

const std::vector<TokenId>& Tokenizer::leading_tokens() const { return data_->around.leading; }
const std::vector<TokenId>& Tokenizer::trailing_tokens() const { return data_->around.trailing; }

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  TokenStream stream(data_->decoder);
  std::string text;
  for (const TokenId id : ids) {
    if (skip_special_tokens && is_special(id)) continue;
    if (const std::string_view token = decoder_token(id); !token.empty()) stream.push(token, text);
  }
  stream.finish(text);
  return text;
}

std::string_view Tokenizer::decoder_token(TokenId id) const {
  const auto& tokens = data_->texts.empty() ? data_->bytes : data_->texts;
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return {};
  return tokens[static_cast<std::size_t>(id)];
}

const TokenDecoder& Tokenizer::decoder() const { return data_->decoder; }

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(data_->bytes.size()); }

std::optional<TokenId> Tokenizer::token_id(std::string_view token) const { return data_->find(token); }

std::optional<TokenId> Tokenizer::eos_token_id() const { return data_->find(data_->config.token("eos_token")); }
std::optional<TokenId> Tokenizer::bos_token_id() const { return data_->find(data_->config.token("bos_token")); }
std::optional<TokenId> Tokenizer::pad_token_id() const { return data_->find(data_->config.token("pad_token")); }

bool Tokenizer::is_special(TokenId id) const {
  const auto found = data_->added.find(id);
  return found != data_->added.end() && found->second.special;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= data_->bytes.size()) return {};
  return data_->bytes[static_cast<std::size_t>(id)];
}

void Tokenizer::add_special_tokens(std::span<const std::string> tokens) {
  auto data = std::make_shared<Data>(*data_);
  for (const std::string& content : tokens) {
    if (const auto known = data->by_content.find(content); known != data->by_content.end() && is_special(known->second))
      continue;
    if (content.empty() || !is_valid_utf8(content))
      throw Error("tokenizer", "a special token is empty or not valid UTF-8");
    const TokenId id = data->find(content).value_or(data->next_id());
    data->add({.id = id, .content = content, .normalized = false, .special = true}, "tokenizer");
  }
  data->finish("tokenizer");
  data->caches = std::make_shared<WordCachePool>();
  data_ = std::move(data);
}

void Tokenizer::set_eos_token(std::string_view token) {
  if (!data_->find(token)) {
    throw Error("tokenizer", text_of("the eos_token ", token, " is not in the vocabulary"),
                "add it as a special token first");
  }
  auto data = std::make_shared<Data>(*data_);
  data->config.set_token("eos_token", token);
  data_ = std::move(data);
}

const std::string& Tokenizer::chat_template() const { return data_->config.chat_template(); }

void Tokenizer::set_chat_template(std::string text) {
  auto data = std::make_shared<Data>(*data_);
  data->config.set_chat_template(std::move(text));
  data_ = std::move(data);
}

std::string Tokenizer::digest() const {
  Fingerprint fingerprint;
  fingerprint.add(data_->rest);
  for (const auto& [token, id] : data_->model->vocabulary()) {
    fingerprint.add(token);
    fingerprint.add(id);
  }
  for (const auto& [left, right] : data_->model->merges()) {
    fingerprint.add(left);
    fingerprint.add(right);
  }
  std::vector<AddedToken> added;
  for (const auto& [id, token] : data_->added) {
    added.push_back(token);
    fingerprint.add(token.content);
    for (const std::int64_t field :
         {std::int64_t{id}, std::int64_t{token.single_word}, std::int64_t{token.lstrip}, std::int64_t{token.rstrip},
          std::int64_t{token.normalized}, std::int64_t{token.special}}) {
      fingerprint.add(field);
    }
  }
  fingerprint.add(data_->config.written(added));
  return fingerprint.finish();
}

void Tokenizer::save(const fs::path& folder) const {
  hone::create_directories(folder);
  std::vector<AddedToken> added;
  for (const auto& [id, token] : data_->added) added.push_back(token);
  write_file(folder / "tokenizer.json", write_tokenizer_file(data_->rest, *data_->model, added));
  write_file(folder / "tokenizer_config.json", data_->config.written(added));
  if (!chat_template().empty()) write_file(folder / "chat_template.jinja", chat_template());
}

}  // namespace hone

#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "text/json_fields.h"

namespace hone {
namespace {

constexpr const char* kTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};

// A special token is a string, or an object with its content and flags.
std::string content_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  const Json& content = member(token, "content");
  return content.is_string() ? content.get<std::string>() : std::string();
}

std::string default_template(const Json& value, std::string_view where) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    for (const Json& named : value) {
      if (member(named, "name") == "default") return string_member(named, "template", where);
    }
  }
  throw Error(where, "chat_template is neither a text nor a list with a template named default");
}

}  // namespace

TokenizerConfig::TokenizerConfig(std::string_view text, std::string_view where) {
  Json json = parse_json(text, where);
  if (!json.is_object()) throw Error(where, "tokenizer_config.json is not a JSON object");
  chat_template_ = default_template(member(json, "chat_template"), where);
  json.erase("chat_template");

  const auto add = [&](AddedToken token) {
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    if (!token.content.empty() && std::none_of(tokens_.begin(), tokens_.end(), same))
      tokens_.push_back(std::move(token));
  };
  const Json& listed = member(json, "added_tokens_decoder");
  if (listed.is_object()) {
    for (const auto& [key, token] : listed.items()) {
      const bool special = bool_member(token, "special", false, where);
      TokenId id = -1;
      const char* end = key.data() + key.size();
      if (std::from_chars(key.data(), end, id).ptr != end || id < 0 || id >= kMostTokens) id = -1;
      add({.id = id,
           .content = content_of(token),
           .single_word = bool_member(token, "single_word", false, where),
           .lstrip = bool_member(token, "lstrip", false, where),
           .rstrip = bool_member(token, "rstrip", false, where),
           .normalized = bool_member(token, "normalized", !special, where),
           .special = special});
    }
  }
  for (const char* key : kTokenKeys)
    add({.content = content_of(member(json, key)), .normalized = false, .special = true});
  for (const Json& token : member(json, "additional_special_tokens")) {
    add({.content = content_of(token), .normalized = false, .special = true});
  }
  json_ = json.dump();
  for (const char* key : kTokenKeys) named_[key] = content_of(member(json, key));
}

std::string_view TokenizerConfig::token(std::string_view key) const {
  const auto found = named_.find(key);
  return found == named_.end() ? std::string_view{} : found->second;
}

void TokenizerConfig::set_token(const char* key, std::string_view content) {
  Json json = Json::parse(json_);
  json[key] = content;
  json_ = json.dump();
  named_[key] = content;
}

std::string TokenizerConfig::written(const std::vector<AddedToken>& added) const {
  Json json = Json::parse(json_);
  Json decoder = Json::object();
  for (const AddedToken& token : added) {
    decoder[std::to_string(token.id)] =
        Json{{"content", token.content}, {"lstrip", token.lstrip},           {"normalized", token.normalized},
             {"rstrip", token.rstrip},   {"single_word", token.single_word}, {"special", token.special}};
  }
  json["added_tokens_decoder"] = std::move(decoder);
  if (!json.contains("tokenizer_class")) json["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json.dump(2) + "\n";
}

}  // namespace hone

#include "text/tokenizer_file.h"

#include <algorithm>

#include "text/json_fields.h"

namespace hone {
namespace {

constexpr TokenId kLargestId = kMostTokens - 1;

// Takes model.vocab out of the file while it is parsed: an ordered JSON object finds its keys by linear search.
class VocabularyFilter {
 public:
  explicit VocabularyFilter(BpeModel::Vocabulary& vocabulary, std::string_view where)
      : vocabulary_(vocabulary), where_(where) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::key) {
      if (depth == 1) in_model_ = value == "model";
      if (depth == 2) in_vocabulary_ = in_model_ && value == "vocab";
      if (depth == 3 && in_model_ && in_vocabulary_) {
        token_ = value.get<std::string>();
        pending_ = true;
        return false;
      }
      return true;
    }
    if (pending_) take(event == Event::value ? value : Json());
    return true;
  }

 private:
  void take(const Json& value) {
    pending_ = false;
    if (!value.is_number_integer() || value < 0 || value > kLargestId) {
      throw Error(where_, text_of("the token ", token_, " has the id ", value.dump(), ", expected 0 to ", kLargestId));
    }
    vocabulary_.emplace_back(std::move(token_), value.get<TokenId>());
  }

  BpeModel::Vocabulary& vocabulary_;
  std::string_view where_;
  std::string token_;
  bool in_model_ = false;
  bool in_vocabulary_ = false;
  bool pending_ = false;
};

std::pair<std::string, std::string> read_merge(const Json& merge, std::string_view where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  throw Error(where, text_of("a merge is ", merge.dump(-1, ' ', false, Json::error_handler_t::replace),
                             ", expected \"a b\" or [\"a\", \"b\"]"));
}

Json written(const AddedToken& token) {
  return Json{{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
              {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
              {"special", token.special}};
}

Json written(const BpeModel::Merges& merges) {
  const bool as_text = std::all_of(merges.begin(), merges.end(), [](const auto& merge) {
    return merge.first.find(' ') == std::string::npos && merge.second.find(' ') == std::string::npos;
  });
  Json list = Json::array();
  for (const auto& [left, right] : merges) {
    if (as_text) {
      list.push_back(text_of(left, " ", right));
    } else {
      list.push_back(Json::array({left, right}));
    }
  }
  return list;
}

}  // namespace

TokenizerFile::TokenizerFile(std::string_view text, std::string_view where) {
  if (is_too_deep_json(text)) throw Error(where, text_of("JSON nested deeper than ", kMaxJsonDepth, " levels"));
  Json json;
  try {
    json = Json::parse(text, VocabularyFilter(vocabulary, where));
  } catch (const Json::parse_error& error) {
    throw Error(where, text_of("not valid JSON near byte ", error.byte));
  } catch (const Json::exception&) {
    throw Error(where, "not valid JSON: a number is out of range");
  }
  if (!json.is_object()) throw Error(where, "is not a JSON object");
  const Json& model = member(json, "model");
  if (!model.is_object()) throw Error(where, "has no model");
  const Json& type = member(model, "type");
  if (!type.is_null() && type != "BPE") {
    throw Error(where, text_of("the model type ", type.dump(), " is not supported (known: BPE)"));
  }
  const Json& listed = member(model, "merges");
  if (!listed.is_array()) throw Error(where, "model has no list `merges`");
  merges.reserve(listed.size());
  for (const Json& merge : listed) merges.push_back(read_merge(merge, where));
  const Json& added = member(json, "added_tokens");
  if (!added.is_null() && !added.is_array()) throw Error(where, "added_tokens is not a list");
  for (const Json& token : added) added_tokens.push_back(read_added_token(token, where));
  json["model"]["merges"] = Json::array();
  json["model"]["vocab"] = Json::object();
  json["added_tokens"] = Json::array();
  rest = json.dump();
}

AddedToken read_added_token(const Json& json, std::string_view where) {
  const Json& id = member(json, "id");
  if (!id.is_number_integer() || id < 0 || id > kLargestId) {
    throw Error(where, text_of("an added token has the id ", id.dump(), ", expected 0 to ", kLargestId));
  }
  const bool special = bool_member(json, "special", false, where);
  return {.id = id.get<TokenId>(),
          .content = string_member(json, "content", where),
          .single_word = bool_member(json, "single_word", false, where),
          .lstrip = bool_member(json, "lstrip", false, where),
          .rstrip = bool_member(json, "rstrip", false, where),
          .normalized = bool_member(json, "normalized", !special, where),
          .special = special};
}

BpeModel::Options read_model_options(const Json& model, bool byte_level, std::string_view where) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(model, key);
    const bool is_none = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
    if (!is_none) throw Error(where, text_of("model ", key, " ", value.dump(), " is not supported"));
  }
  const Json& dropout = member(model, "dropout");
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0.0)) {
    throw Error(where, text_of("model dropout ", dropout.dump(), " is not supported, because it makes ids random"));
  }
  BpeModel::Options options{.byte_level = byte_level,
                            .ignore_merges = bool_member(model, "ignore_merges", false, where),
                            .fuse_unknown = bool_member(model, "fuse_unk", false, where),
                            .byte_fallback = bool_member(model, "byte_fallback", false, where)};
  if (!member(model, "unk_token").is_null()) options.unknown_token = string_member(model, "unk_token", where);
  return options;
}

std::string write_tokenizer_file(const std::string& rest, const BpeModel& model,
                                 const std::vector<AddedToken>& added_tokens) {
  Json json = Json::parse(rest);
  Json added = Json::array();
  for (const AddedToken& token : added_tokens) added.push_back(written(token));
  json["added_tokens"] = std::move(added);
  Json vocabulary = Json::object();
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  entries.reserve(model.vocabulary().size());
  // Appended without a search: tokens are known to be unique.
  for (const auto& [token, id] : model.vocabulary()) entries.emplace_back(token, id);
  json["model"]["vocab"] = std::move(vocabulary);
  json["model"]["merges"] = written(model.merges());
  return json.dump(2) + "\n";
}

}  // namespace hone
